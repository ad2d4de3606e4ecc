"""Where a page ended, as opaque text: a fingerprint of the query, the rows returned so far, the last row's keys.

A cursor comes back from outside, so everything in it is checked: ClickHouse would wrap an integer
that its parameter's type cannot hold, and a cursor of another query would page through nonsense.
"""

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.tql_sql.order import SortKey
from rankscope_query_api.tql_sql.parameters import Value

_INTEGER_BITS = {
    **{f"UInt{bits}": (0, bits) for bits in (8, 16, 32, 64, 128)},
    **{f"Int{bits}": (1, bits - 1) for bits in (8, 16, 32, 64, 128)},
}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A decoded cursor.

    Attributes:
        returned: Rows on the pages before.
        row: Value of each sort key in the last of them.
    """

    returned: int
    row: list[Value]


def fingerprint(text: str) -> str:
    """What ties a cursor to its query."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def encode(mark: str, returned: int, *, row: Sequence[Value]) -> str:
    """The text of a cursor."""
    return base64.urlsafe_b64encode(json.dumps([mark, returned, *row]).encode()).decode().rstrip("=")


def decode(text: str, mark: str, *, keys: Sequence[SortKey]) -> Cursor:
    """The cursor a text stands for.

    Raises:
        InvalidRequestError: It is none, or it belongs to another query.
    """
    try:
        raw = base64.b64decode((text + "=" * (-len(text) % 4)).encode("ascii"), altchars=b"-_", validate=True)
        found: object = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _refused(text) from error
    values = cast("list[object]", found) if isinstance(found, list) else []
    if len(values) != len(keys) + 2:
        raise _refused(text)
    made_for, returned, *row = values
    fitted = [_fitting(value, key.table) for value, key in zip(row, keys, strict=True)]
    fitting = [value for value in fitted if value is not None]
    if made_for != mark or not isinstance(returned, int) or returned < 1 or len(fitting) < len(keys):
        raise _refused(text)
    return Cursor(returned, fitting)


def _fitting(value: object, table: str) -> Value | None:
    """The value if its key can hold it, else None."""
    if table == "String":
        return value if isinstance(value, str) and _is_unicode(value) else None
    if table == "Float64":
        return value if isinstance(value, float) and not math.isnan(value) else None
    signed, bits = _INTEGER_BITS[table]
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(2**bits) * signed <= value < 2**bits else None


def _is_unicode(text: str) -> bool:
    """JSON can spell half of a surrogate pair, which no string column holds."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _refused(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"after={text[:64]!r} is no cursor of this query",
        hint="send the `next` of a page of the same query, unchanged, or leave `after` out",
        code="invalid_cursor",
    )
