"""`rankscope.connect`: the way to the client that a trainer, which never reads, does not pay for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.client import Client


def connect(url: str | None = None, *, api_key: str | None = None, project: str | None = None) -> "Client":
    """A client that reads what was recorded: runs, TQL and SQL queries, trees of spans; nothing is asked yet.

    Args:
        url: `http://host:port` of a query service; None: RANKSCOPE_URL, else the server in this user's data folder.
        api_key: the key it asks with; None: RANKSCOPE_KEY, else none.
        project: whose data is read; None: RANKSCOPE_PROJECT, else the key's only project, else the default.

    Raises:
        RankscopeError: the URL cannot be one of a query service, the key has characters that no key has, or no URL
            was given and no server runs here.
    """
    # Not at the top: it brings the HTTP client and what `rankscope up` is made of, a tenth of a second.
    from rankscope.client import connect as connect_client

    return connect_client(url, api_key=api_key, project=project)
