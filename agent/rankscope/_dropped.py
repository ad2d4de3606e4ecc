"""What was cut or left out of a span, as the span says it: by name, and by number where it was much.

Promises: short whatever was lost, and every field that lost something is named.
"""

from rankscope._bounds import NAME, cut

MOST_OF_FIELD = 8
"""Names of one field's losses."""


class Dropped:
    """Names of what was cut or left out: a field (`inputs`), or an entry of one (`attributes.model`).

    Attributes:
        names: The first of each field, in the order they came.
        more: How many more, by field.
    """

    __slots__ = ("more", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.more: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Note one; the same one again says nothing."""
        name = cut(name, NAME)
        if name in self.names:
            return
        field = _field(name)
        if sum(_field(known) == field for known in self.names) < MOST_OF_FIELD:
            self.names.append(name)
        else:
            self.add_more(field, 1)

    def add_more(self, field: str, count: int) -> None:
        """Note so many more of a field, without their names."""
        if count > 0:
            self.more[field] = self.more.get(field, 0) + count

    def copy(self) -> "Dropped":
        """The same, to be changed by itself."""
        made = Dropped()
        made.names, made.more = self.names.copy(), self.more.copy()
        return made

    def text(self) -> str:
        """`attributes.model, metrics.a, … 1641 more of metrics`; empty where nothing was lost."""
        return ", ".join((*self.names, *(f"… {count} more of {field}" for field, count in self.more.items())))


def _field(name: str) -> str:
    return name.partition(".")[0]
