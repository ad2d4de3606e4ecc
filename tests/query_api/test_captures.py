"""Kept tensor values: listed without their bytes, downloaded bit for bit, and never another project's."""

import hashlib
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast

import httpx
import numpy as np
import pytest
import pytest_asyncio

from rankscope_proto.names import Role
from rankscope_query_api.containers import FileFormat, TensorFile, container
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.routes.captures import CHECKED_BYTES, CHUNKS_AT_ONCE
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import error_in, get, walked
from tests.query_api.batches import START, Row, Writer
from tests.query_api.conftest import over

RUN = "/api/v1/runs/r/captures"
BF16: dict[str, Any] = {"dtype": "bfloat16", "shape": [(CHECKED_BYTES + 18) // 2]}
SMALL = bytes(range(24))
LARGE = np.random.default_rng(1).bytes(CHECKED_BYTES + 18)
CHUNK = 2**20


def digest_of(data: bytes) -> str:
    """The digest of a content, as the routes have it."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def kept(data: bytes, *, chunks: Sequence[int] | None = None, **columns: Any) -> list[Row]:
    """The rows of a content; `chunks`: only these of them."""
    digest, amount = digest_of(data), max(1, -(-len(data) // CHUNK))
    row = {
        "name": "head.weight",
        "module": "head",
        "role": Role.WEIGHT.code,
        "step": 3,
        "time": START,
        "dtype": "uint8",
        "shape": [len(data)],
        "full_shape": [len(data)],
        "part": "whole",
        "part_of": "{}",
        "digest_hi": int(digest[:16], 16),
        "digest_lo": int(digest[16:], 16),
        "bytes": len(data),
        "chunks": amount,
        "cause": "nan",
        **columns,
    }
    wanted = range(amount) if chunks is None else chunks
    return [{**row, "chunk": at, "data": data[at * CHUNK : (at + 1) * CHUNK]} for at in wanted]


def named(row: Sequence[Row], **columns: Any) -> list[Row]:
    """A row that names the content of another."""
    return [{**row[0], "chunks": 0, "data": b"", **columns}]


@pytest.fixture(scope="module")
def filled(front_process: FrontProcess) -> Iterator[Store]:
    """A store with kept values of two ranks, and of another project's run of the same id."""
    store = Store(front_process.url)
    migrate(store.client)
    first, second, foreign = Writer("r", 0), Writer("r", 1), Writer("r", 0, project="other")
    small = kept(SMALL, dtype="float32", shape=[2, 3])
    lost = kept(b"x" * (2 * CHUNK), name="lost", chunks=[0])
    changed = [{**row, "data": b"other"} for row in kept(b"right", name="changed", time=START + 9)]
    gap: Row = {"class": 2, "cause": "budget", "data_kind": "captures", "detail": "too large", "start": START}
    batches = [
        first.seal(captures=small, gaps=[gap]),
        *(first.seal(captures=[row]) for row in kept(LARGE, name="tail[1].w/x", step=None, **BF16)),
        first.seal(captures=[*lost, *changed, *named(small, name="head.bias", step=4, dtype="float32", shape=[6])]),
        second.seal(captures=kept(SMALL, dtype="float32", shape=[2, 3], time=START + 1)),
        second.seal(captures=kept(LARGE, name="tail[1].w/x", step=None, **BF16, chunks=[0, 3])),
        second.seal(captures=named(small, name="100%", step=5, role=Role.GRAD.code, dtype="complex128", shape=[])),
        foreign.seal(captures=kept(b"secret", name="secret")),
    ]
    for at, batch in enumerate(batches):
        insert(store.client, batch, token=str(at))
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api(filled: Store) -> AsyncIterator[httpx.AsyncClient]:
    async with over(filled) as opened:
        yield opened


async def file(api: httpx.AsyncClient, data: bytes, **query: Any) -> httpx.Response:
    """What a download answers."""
    return await api.get(f"{RUN}/{digest_of(data)}", params=query)


async def test_the_list_has_every_kept_tensor_once_without_its_bytes(api: httpx.AsyncClient) -> None:
    listed = await walked(api, RUN, limit=2)
    page = await get(api, RUN, limit=3)

    assert [(row["name"], row["rank"], row["step"], row["is_whole"]) for row in listed] == [
        *(("tail[1].w/x", 0, None, True), ("tail[1].w/x", 1, None, True)),
        *(("head.weight", 0, 3, True), ("lost", 0, 3, False), ("head.weight", 1, 3, True)),
        *(("changed", 0, 3, True), ("head.bias", 0, 4, True), ("100%", 1, 5, True)),
    ]
    assert listed[2] == {
        **listed[2],
        "role": "weight",
        "dtype": "float32",
        "shape": [2, 3],
        "part": "whole",
        "part_of": {},
        "digest": digest_of(SMALL),
        "bytes": 24,
        "cause": "nan",
    }
    assert (page["total"], page["truncated"]) == (8, True)
    assert [(gap["cause"], gap["details"]) for gap in page["gaps"]] == [("budget", ["too large"])]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"name": "head.*"}, ["head.weight", "head.weight", "head.bias"]),
        ({"name": "100%"}, ["100%"]),
        ({"name": "1??%"}, ["100%"]),
        ({"name": "h%"}, []),
        ({"name": "tail[1].w/x", "rank": 1}, ["tail[1].w/x"]),
        ({"step": 3, "rank": 0}, ["head.weight", "lost", "changed"]),
        ({"role": "grad"}, ["100%"]),
    ],
)
async def test_the_list_is_filtered_by_name_step_rank_and_role(
    api: httpx.AsyncClient, query: dict[str, Any], names: list[str]
) -> None:
    assert [row["name"] for row in (await get(api, RUN, **query))["items"]] == names


@pytest.mark.parametrize(("data", "query"), [(SMALL, {"name": "head.weight"}), (LARGE, {})], ids=["small", "large"])
async def test_content_is_downloaded_as_it_was(api: httpx.AsyncClient, data: bytes, query: dict[str, str]) -> None:
    raw = await file(api, data, format="raw", **query)
    head = await api.head(f"{RUN}/{digest_of(data)}", params={"format": "raw", **query})
    safetensors = (await file(api, data, **query)).content
    archive = await file(api, data, format="npz", **query)

    assert len(data) > CHUNKS_AT_ONCE * CHUNK or data is SMALL
    assert raw.content == data
    assert raw.headers["content-length"] == str(len(data)) == head.headers["content-length"]
    assert head.content == b""
    length = int.from_bytes(safetensors[:8], "little")
    assert (8 + length) % 8 == 0
    ((name, entry),) = [one for one in json.loads(safetensors[8 : 8 + length]).items() if one[0] != "__metadata__"]
    assert entry["data_offsets"] == [0, len(data)]
    assert safetensors[8 + length :] == data
    ((member, array),) = np.load(io.BytesIO(archive.content)).items()
    assert array.tobytes() == data
    assert (name, entry["dtype"], member, array.dtype) == (
        ("head.weight", "F32", "head.weight", np.float32)
        if data is SMALL
        else ("tail[1].w/x", "BF16", "tail[1].w_x.bfloat16", np.uint16)
    )
    assert archive.headers["content-disposition"].endswith('rank0.npz"')
    assert raw.headers["x-rankscope-dtype"] == ("float32" if data is SMALL else "bfloat16")


async def test_what_stands_for_several_tensors_is_to_be_named(api: httpx.AsyncClient) -> None:
    ambiguous = error_in(await file(api, SMALL), status=422)
    bias = await file(api, SMALL, name="head.bias", format="npz")

    assert ambiguous["code"] == "ambiguous_capture"
    assert "name one" in ambiguous["hint"]
    assert np.load(io.BytesIO(bias.content))["head.bias"].shape == (6,)


async def test_what_is_not_there_is_not_whole_or_was_changed_is_said(api: httpx.AsyncClient) -> None:
    unknown = error_in(await file(api, b"nothing"), status=404)
    elsewhere = error_in(await file(api, SMALL, step=99), status=404)
    incomplete = error_in(await file(api, b"x" * (2 * CHUNK)), status=409)
    damaged = error_in(await file(api, b"right"), status=409)
    no_type = error_in(await file(api, SMALL, name="100%"), status=422)
    malformed = error_in(await api.get(f"{RUN}/xyz"), status=422)

    assert [one["code"] for one in (unknown, elsewhere)] == ["unknown_capture"] * 2
    assert (incomplete["code"], "1 of 2 chunks" in incomplete["message"]) == ("incomplete_capture", True)
    assert damaged["code"] == "damaged_capture"
    assert (no_type["code"], no_type["expected"]) == ("no_such_type", ["npz", "raw"])
    assert malformed["code"] == "invalid_request"


async def test_a_large_content_that_was_changed_never_ends_well(own: Store) -> None:
    rows = kept(LARGE)
    rows[-1] = {**rows[-1], "data": b"y" * 18}
    for at, row in enumerate(rows):
        insert(own.client, Writer("r", 0).seal(captures=[row]), token=str(at))
    async with over(own) as api:
        answer = await file(api, LARGE, format="raw")

    assert answer.status_code == 200
    assert len(answer.content) < int(answer.headers["content-length"]) == len(LARGE)


async def test_what_rows_claim_of_themselves_neither_breaks_an_answer_nor_is_held_for_true(own: Store) -> None:
    odd, endless, small = b"odd", b"endless", b"z" * len(LARGE)
    rows = [
        *kept(odd, dtype="float32\r\nx-evil: \N{GREEK SMALL LETTER PI}"),
        {**kept(endless)[0], "chunks": 2**32 - 1},
        *kept(small, bytes=1),
    ]
    rows[-1] = {**rows[-1], "data": b"y" * 18}
    for at, row in enumerate(rows):
        insert(own.client, Writer("r", 0).seal(captures=[row]), token=str(at))
    async with over(own) as api:
        named = await file(api, odd, format="raw")
        incomplete = error_in(await file(api, endless), status=409)
        streamed = await file(api, small, format="raw")

    assert (named.content, named.headers["x-rankscope-dtype"]) == (odd, "float32__x-evil___")
    assert "1 of 4294967295 chunks" in incomplete["message"]
    assert (streamed.status_code, streamed.content.endswith(b"y")) == (200, False)


async def test_no_project_reads_anothers_values(api: httpx.AsyncClient) -> None:
    mine = await walked(api, RUN, limit=100)
    foreign = error_in(await file(api, b"secret"), status=404)
    theirs = await get(api, RUN, project="other")
    theirs_of_mine = error_in(await file(api, SMALL, project="other"), status=404)

    assert "secret" not in json.dumps(mine)
    assert foreign["code"] == theirs_of_mine["code"] == "unknown_capture"
    assert [row["name"] for row in theirs["items"]] == ["secret"]
    assert (await file(api, b"secret", project="other", format="raw")).content == b"secret"


@pytest.mark.parametrize("form", FileFormat)
@pytest.mark.parametrize("shape", [[], [0, 3], [2], [3, 2]])
def test_numpy_reads_what_npz_says(form: FileFormat, shape: list[int]) -> None:
    values = np.arange(float(np.prod(shape, dtype=int))).reshape(shape).astype("<f8")
    tensor = TensorFile("a b/c", "float64", shape, values.nbytes, {})

    made = container(form, tensor)
    whole = made.begin() + made.add(values.tobytes()) + made.end()

    assert values.tobytes() in whole
    if form is FileFormat.NPZ:
        read = cast("Mapping[str, Any]", np.load(io.BytesIO(whole)))["a_b_c"]
        assert (read.shape, read.dtype, read.tobytes()) == (tuple(shape), np.float64, values.tobytes())


def test_a_type_that_a_format_lacks_is_refused_with_the_others_named() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        container(FileFormat.NPZ, TensorFile("x", "float4_e2m1fn_x2", [1], 1, {}))

    assert refused.value.expected == ["safetensors", "raw"]
