"""Kept tensor values: the list of what was kept, and one content as a file."""

import hashlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from rankscope_proto.names import Role
from rankscope_proto.sections_probe import CHUNK_BYTES
from rankscope_query_api.answers import Page, json_answer
from rankscope_query_api.containers import Container, FileFormat, TensorFile, container, file_name
from rankscope_query_api.errors import ConflictError, InvalidRequestError, NotFoundError
from rankscope_query_api.routes.asking import (
    MAX_STEP,
    PREFIX,
    InProject,
    Paged,
    Run,
    code_named,
    headed,
    is_head,
    launches_of,
    store_of,
)
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import capture_json, gap_json
from rankscope_query_api.routes.tensors import ROLES
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import CaptureFilter, ChunkPlace, Digest, Record, RunKey

logger = logging.getLogger(__name__)

router = APIRouter(prefix=PREFIX, tags=["tensors"])

CAPTURE_KEY = (int, int, int, int, int, str)
"""Shape of the key of `CaptureReader.captures`."""

CHUNKS_AT_ONCE = 4
"""Chunks that are read by one statement: of at most a MiB each, and a third more on their way."""

CHECKED_BYTES = 8 * CHUNK_BYTES
"""Content up to this size is checked before the first byte of the answer is sent."""

MEDIA = {FileFormat.NPZ: "application/zip"}

DigestText = Annotated[
    str, Path(description="Digest of the content, 32 hex digits, as the list has it.", pattern="^[0-9a-fA-F]{32}$")
]


class _Which(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(
        default=None, max_length=4096, description="A tensor's path; * stands for any text, ? for one character."
    )
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="Optimizer step.")
    rank: int | None = Field(default=None, ge=-1, le=2**31 - 1, description="Global rank.")
    role: str | None = Field(default=None, description=f"What the tensor is: {', '.join(ROLES)}.")

    def where(self) -> CaptureFilter:
        """The rows that are meant."""
        return CaptureFilter(self.name, self.step, self.rank, code_named(ROLES, self.role, parameter="role"))


class CaptureQuery(_Which, Paged):
    """Which rows."""


class FileQuery(_Which, InProject):
    """Which file."""

    format: FileFormat = Field(default=FileFormat.SAFETENSORS, description="`safetensors`, `npz` or `raw`.")


@router.get("/runs/{run}/captures")
async def list_captures(request: Request, run: Run, *, query: Annotated[CaptureQuery, Query()]) -> Response:
    """Lists the tensors whose values were kept, by step and time; `is_whole`: every byte of them can be downloaded."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    listing = listing_of(request, query)
    found = await store.captures.captures(key, query.where(), limit=query.limit, after=listing.begin(CAPTURE_KEY))
    whole = await store.captures.whole(key, sorted({_digest(row) for row in found.items}))
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("captures",), step=query.step)]
    items = [capture_json(row, is_whole=_digest(row) in whole) for row in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


@router.get("/runs/{run}/captures/{digest}", response_class=StreamingResponse)
async def download_capture(
    request: Request, run: Run, digest: DigestText, *, query: Annotated[FileQuery, Query()]
) -> Response:
    """Streams kept values as a file, put together from their chunks and checked against their digest.

    Tensors with the same bytes have the same digest: where they differ in type or shape, name one of them. A stream
    that breaks off, or is found damaged at its end, ends without its last bytes, which HTTP clients report.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    content = Content(store, key, digest.lower())
    row = await content.described(query.where())
    tensor = _file_of(row, key, digest=digest.lower())
    made = container(query.format, tensor)
    places = await content.places()
    headers = {
        "content-disposition": f'attachment; filename="{_file_name(row, query.format)}"',
        "x-rankscope-dtype": file_name(row["dtype"]),  # whatever a sender wrote there
        "x-rankscope-shape": ",".join(map(str, row["shape"])),
    }
    media = MEDIA.get(query.format, "application/octet-stream")
    if query.format is not FileFormat.NPZ:
        headers["content-length"] = str(len(made.begin()) + tensor.bytes)
    if is_head(request):
        return headed(media, headers)
    if len(places) * CHUNK_BYTES <= CHECKED_BYTES:  # what a row says of its bytes is not what the chunks are
        whole = b"".join([piece async for piece in content.pieces(places)])
        return Response(made.begin() + made.add(whole) + made.end(), media_type=media, headers=headers)
    return StreamingResponse(content.stream(places, made), media_type=media, headers=headers)


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes behind a digest.

    Attributes:
        store: What they are read from.
        key: The run.
        digest: 32 hex digits, lower case.
    """

    store: TraceStore
    key: RunKey
    digest: str

    @property
    def halves(self) -> Digest:
        """The digest as the store has it."""
        return int(self.digest[:16], 16), int(self.digest[16:], 16)

    async def described(self, where: CaptureFilter) -> Record:
        """The first row that has this content and is meant.

        Raises:
            NotFoundError: There is none.
            InvalidRequestError: There are several, and they differ in type or shape.
        """
        found = await self.store.captures.named(self.key, self.halves, where=where)
        if not found:
            raise NotFoundError(
                f"no capture {self.digest} in this run that is as asked for",
                hint="list them by /captures, and take a digest from there",
                code="unknown_capture",
            )
        if len(found) > 1:
            both = " and ".join(f"{row['name']} ({row['dtype']}, shape {list(row['shape'])})" for row in found)
            raise InvalidRequestError(
                f"capture {self.digest} is the bytes of {both}",
                hint="name one by name, step, rank or role",
                code="ambiguous_capture",
            )
        return found[0]

    async def places(self) -> Sequence[ChunkPlace]:
        """Where its chunks are, in order.

        Raises:
            ConflictError: Some are not in the store.
        """
        found = await self.store.captures.places(self.key, self.halves)
        chunks = max((place.chunks for place in found), default=0)
        if not found or (len(found), found[-1].chunk) != (chunks, chunks - 1):
            of = f"{len(found)} of {chunks} chunks" if chunks else "none of its bytes"
            raise ConflictError(
                f"of capture {self.digest} the store has {of}",
                hint="they may still be on their way, or were lost: /completeness says which",
                code="incomplete_capture",
            )
        return found

    async def pieces(self, places: Sequence[ChunkPlace]) -> AsyncIterator[bytes]:
        """The bytes, chunk by chunk; the last one only once all of them have the digest.

        Raises:
            ConflictError: They have another, or are gone meanwhile.
        """
        hashed = hashlib.blake2b(digest_size=16)
        held: bytes | None = None
        for at in range(0, len(places), CHUNKS_AT_ONCE):
            some = places[at : at + CHUNKS_AT_ONCE]
            for piece in await self.store.captures.chunks(self.key, self.halves, places=some):
                if held is not None:
                    yield held
                held = piece
                hashed.update(piece)
        if hashed.hexdigest() != self.digest:
            raise ConflictError(
                f"the bytes of capture {self.digest} have another digest: they were changed, or deleted",
                hint="capture the values again",
                code="damaged_capture",
            )
        yield held or b""

    async def stream(self, places: Sequence[ChunkPlace], made: Container) -> AsyncIterator[bytes]:
        """The bytes as they stand in the file; what is found damaged ends without its last bytes."""
        yield made.begin()
        async for piece in self.pieces(places):
            yield made.add(piece)
        yield made.end()


def _digest(row: Record) -> Digest:
    return row["digest_hi"], row["digest_lo"]


def _file_of(row: Record, key: RunKey, *, digest: str) -> TensorFile:
    notes = {
        "project": key.project,
        "run": key.run,
        "role": Role.of(row["role"]),
        "full_shape": ",".join(map(str, row["full_shape"])),
        "digest": digest,
        **{name: str(row[name]) for name in ("rank", "step", "microstep", "part", "part_of", "cause")},
    }
    return TensorFile(row["name"], row["dtype"], row["shape"], row["bytes"], notes)


def _file_name(row: Record, form: FileFormat) -> str:
    step = "" if row["step"] is None else f"-step{row['step']}"
    ending = "bin" if form is FileFormat.RAW else form.value
    return f"{file_name(row['name'])}-{Role.of(row['role'])}{step}-rank{row['rank']}.{ending}"
