"""Where spans stand in their trees, as far as the front knows: names from the root, and how many ancestors there are.

A parent mostly ends after its children, so it is open, or in the same batch, when they are written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope._bounds import path_under
from rankscope.front.book import Book, Kept, State
from rankscope.front.halves import Half
from rankscope.front.rows import MAX_DEPTH, Whole

Placed = tuple[str, int]
"""A path and a depth."""


def placed(book: Book, run: int, *, spans: Sequence[Kept]) -> Mapping[Kept, Whole]:
    """The spans as they are written, each with its path."""
    finder = _Finder(book, run)
    found: dict[Kept, Whole] = {}
    for kept in spans:
        half = Half.of_text(kept.body)
        path, depth = finder.place(kept.trace, kept.span, half=half)
        found[replace(kept, path=path, depth=depth)] = Whole(kept.trace, kept.span, half, path, depth)
    return found


class _Finder:
    """Looks each ancestor up once.

    Args:
        book: Where they are.
        run: Whose they are.
    """

    def __init__(self, book: Book, run: int) -> None:
        self._book = book
        self._run = run
        self._known: dict[tuple[bytes, bytes], tuple[Kept, Half | None] | None] = {}

    def _ancestor(self, trace: bytes, span: bytes) -> tuple[Kept, Half | None] | None:
        """What is known of an ancestor, and what it holds where it is not written yet."""
        if (trace, span) not in self._known:
            kept = self._book.span(self._run, trace, span)
            is_body = kept is not None and kept.state in (State.OPEN, State.CLOSED)
            self._known[trace, span] = kept and (kept, Half.of_text(kept.body) if is_body else None)
        return self._known[trace, span]

    def place(self, trace: bytes, span: bytes, *, half: Half) -> Placed:
        """Path and depth of a span."""
        chain: list[tuple[bytes, Half]] = [(span, half)]
        base: Placed = ("", -1)
        parent = _parent(half)
        while parent and len(chain) <= MAX_DEPTH and parent not in {known for known, _ in chain}:
            found = self._ancestor(trace, parent)
            if found is None:
                break
            kept, above = found
            if above is None:
                base = (kept.path, kept.depth)
                break
            chain.append((parent, above))
            parent = _parent(above)
        return _joined(base, [str(one.value("name") or "") for _, one in reversed(chain)])


def _parent(half: Half) -> bytes:
    return bytes.fromhex(str(half.value("parent_span_id") or ""))


def _joined(base: Placed, names: Sequence[str]) -> Placed:
    path, depth = base
    for name in names:
        path = path_under(path, name)
    return path, depth + len(names)
