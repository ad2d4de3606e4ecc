"""Tells a finding to an address of the operator's: one POST of JSON, and nothing more.

Promises: `https`, or plain HTTP to this machine alone; no redirect is followed; within five seconds it is over; a
failure is logged without the address's path, which may hold a secret, and is never tried again: at most once a finding.
"""

import asyncio
import http.client
import logging
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import orjson

from rankscope_query_api.answers import Json, conventional

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0


class Webhook:
    """The address.

    Args:
        url: As `checked_webhook_url` lets it pass, not empty.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)

    async def post(self, document: Mapping[str, Json]) -> bool:
        """Tells it; whether it was taken. Raises nothing."""
        body = orjson.dumps(conventional(document))
        try:
            status = await asyncio.wait_for(asyncio.to_thread(_posted, self._parts, body), TIMEOUT_S)
        except (OSError, TimeoutError, http.client.HTTPException) as error:
            logger.warning("a finding was not told to %s: %s", self._parts.hostname, str(error) or type(error).__name__)
            return False
        if not 200 <= status < 300:
            logger.warning("a finding was not taken by %s: it answered %d", self._parts.hostname, status)
            return False
        return True


def _posted(parts: SplitResult, body: bytes) -> int:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "rankscope"})
        return connection.getresponse().status
    finally:
        connection.close()
