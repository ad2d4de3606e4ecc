"""Where a page of a list ends, as opaque text that only the same list takes back.

A cursor holds the fingerprint of the list it was made for (the route, the run or step it names, the filters) before
the last row's key: the keys of two lists often have the same shape, and another list's page would be a wrong answer
with a 200.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import cast

import orjson
from fastapi import Request

from rankscope_query_api.answers import Key
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.routes.asking import Paged
from rankscope_query_api.tql_sql.cursor import fingerprint


@dataclass(frozen=True, slots=True)
class Listing:
    """One list, and the place in it that a request asks for.

    Attributes:
        mark: What ties a cursor to this list.
        after: What the page before called `next`; None: the first page is asked for.
    """

    mark: str
    after: str | None = None

    def begin(self, shape: tuple[type, ...]) -> Key | None:
        """The key after which the page begins; None: at the first row.

        Args:
            shape: The types of the order's columns.

        Raises:
            InvalidRequestError: The text is no cursor, or it is one of another list.
        """
        if self.after is None:
            return None
        mark, *key = _values(self.after) or [None]
        if mark != self.mark or tuple(type(value) for value in key) != shape:
            raise _no_cursor(self.after)
        return cast("Key", tuple(key))

    def cursor(self, key: Key | None) -> str | None:
        """The opaque text of a key; none for the end of the list."""
        if key is None:
            return None
        return base64.urlsafe_b64encode(orjson.dumps([self.mark, *key])).decode().rstrip("=")


def listing_of(request: Request, query: Paged, *, launch: str = "", path: str = "") -> Listing:
    """The list that a request means.

    Args:
        request: The request, of a route that answers a list.
        query: Its parameters; how many rows and after which makes no other list.
        launch: Id of the launch that was taken because none was named: it may be another one at the next page.
        path: The route that takes the next page, where it is another one than the request's, with the same names.
    """
    filters = query.model_dump(exclude={"limit", "after"})
    meant = [path or request.scope["route"].path, dict(request.path_params), filters, launch]
    return Listing(fingerprint(orjson.dumps(meant, option=orjson.OPT_SORT_KEYS).decode()), query.after)


def _values(text: str) -> list[object]:
    """The values a cursor holds; none: it is no cursor."""
    try:
        raw = base64.b64decode((text + "=" * (-len(text) % 4)).encode("ascii"), altchars=b"-_", validate=True)
        found: object = orjson.loads(raw)
    except (ValueError, binascii.Error):
        return []
    return cast("list[object]", found) if isinstance(found, list) else []


def _no_cursor(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"after={text[:64]!r} is no cursor of this list",
        hint="send the `next` of a page of the same run and the same filters, unchanged, or leave `after` out",
        code="invalid_cursor",
    )
