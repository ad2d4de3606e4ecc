"""`rankscope dlq`: the batches that could not be stored, kept in the broker with their original bytes.

`replay` puts a batch into its stream again, to be looked for in the store and inserted if it is not
there: after a fix it is stored as if nothing had happened, and the gap stated for it is void.
`discard` gives it up for good. Where no broker is named, it is that of the server of this user that
runs in the data folder.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

import typer
from google.protobuf.message import DecodeError
from pydantic import SecretStr

from rankscope import _discovery
from rankscope.cli._errors import FAILED, OK
from rankscope.cli._output import say, say_aside, say_json
from rankscope.cli._source import Home, chosen_folder
from rankscope.cli._table import say_table
from rankscope_ingest.commands import REDIS_URL
from rankscope_ingest.dead_letters import DeadLetter, DeadLetters, Stage
from rankscope_ingest.errors import ConfigError, NoSuchLetter
from rankscope_ingest.settings import GatewaySettings
from rankscope_proto.columns import SECTIONS
from rankscope_proto.v1.batch_pb2 import Batch

dlq = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="List, show, replay and discard the batches that could not be stored.",
)

AsJson = Annotated[bool, typer.Option("--json", envvar="RANKSCOPE_JSON", help="The answer as one JSON document.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of the batches, as `ls` shows them.")]
All = Annotated[bool, typer.Option("--all", envvar="RANKSCOPE_DLQ_ALL", help="Every batch there is.")]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_REDIS_URL",
        help=GatewaySettings.model_fields["redis_url"].description or "",
        show_default=f"the broker of the server in the data folder, else {REDIS_URL}",
    ),
]
Result = TypeVar("Result")
Letters = list[tuple[str, DeadLetter]]


@dlq.command("ls", short_help="Which batches there are.")
def list_letters(redis_url: RedisUrl = None, *, home: Home = None, as_json: AsJson = False) -> None:
    """Which batches there are, the oldest first.

    Example: rankscope dlq ls --json
    """
    letters = _with_letters(_broker(redis_url, home), _every)
    items = [_item(letter_id, letter) for letter_id, letter in letters]
    if as_json:
        say_json({"items": items})
        return
    columns = ("id", "at", "stage", "code", "run", "rank", "seq", "rows", "bytes", "detail")
    say_table(items, columns, none="no batches")


@dlq.command("show", short_help="Everything about one batch.")
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The batch's id, as `ls` shows it.")],
    redis_url: RedisUrl = None,
    *,
    payload: Annotated[
        Path | None,
        typer.Option(envvar="RANKSCOPE_DLQ_PAYLOAD", help="Write its original bytes to this file.", show_default="no"),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Everything about one batch: why it is here, of which run it is, and what it holds.

    Example: rankscope dlq show 1795000000000-0 --payload batch.bin
    """
    letter = _with_letters(_broker(redis_url, home), lambda letters: _found(letters, letter_id))
    if payload is not None:
        payload.write_bytes(letter.payload)
    item = {**_item(letter_id, letter), "digest": letter.digest.hex(), "sections": _sections(letter)}
    if as_json:
        say_json(item)
        return
    for name, value in item.items():
        say(f"{name:12} {value}")


@dlq.command("replay", short_help="Put batches into their streams again.")
def replay(
    ids: Ids = None,
    redis_url: RedisUrl = None,
    *,
    is_all: All = False,
    home: Home = None,
    as_json: AsJson = False,
) -> int:
    """Put batches into their streams again, to be stored after whatever kept them out was mended.

    Safe to repeat: what is in the store already is not inserted twice. A batch in conflict is not replayed, because
    its place is another batch's; exit 1 where it was named.

    Example: rankscope dlq replay --all
    """
    return _each(ids, _broker(redis_url, home), is_all=is_all, as_json=as_json, done="replayed", act=_replay)


@dlq.command("discard", short_help="Give batches up for good.")
def discard(
    ids: Ids = None,
    redis_url: RedisUrl = None,
    *,
    is_all: All = False,
    home: Home = None,
    as_json: AsJson = False,
) -> int:
    """Give batches up for good; what was stated of them as lost stays so.

    Example: rankscope dlq discard 1795000000000-0
    """
    return _each(ids, _broker(redis_url, home), is_all=is_all, as_json=as_json, done="discarded", act=_discard)


class Act(Protocol):
    """What is done with one batch; whether it was."""

    def __call__(self, letters: DeadLetters, letter_id: str, *, letter: DeadLetter) -> Awaitable[bool]:
        """Does it."""
        ...


def _each(ids: list[str] | None, redis_url: str, *, is_all: bool, as_json: bool, done: str, act: Act) -> int:
    if bool(ids) == is_all:
        raise ConfigError("name batches by their ids (`rankscope dlq ls`), or all of them by --all")
    acted, left = _with_letters(redis_url, lambda letters: _act(letters, ids or (), is_all=is_all, act=act))
    if as_json:
        say_json({done: acted, "left": left})
    else:
        _say_acted(done, acted, left=left)
    return FAILED if left and not is_all else OK


def _say_acted(done: str, acted: list[str], *, left: list[str]) -> None:
    say(f"{done}: {len(acted)}")
    for letter_id in left:
        say_aside(f"left: {letter_id}: another batch has its place; `rankscope dlq discard {letter_id}` gives it up")


async def _act(letters: DeadLetters, ids: Iterable[str], *, is_all: bool, act: Act) -> tuple[list[str], list[str]]:
    chosen = await _every(letters) if is_all else [(one, await _found(letters, one)) for one in ids]
    acted: list[str] = []
    left: list[str] = []
    for letter_id, letter in chosen:
        (acted if await act(letters, letter_id, letter=letter) else left).append(letter_id)
    return acted, left


async def _replay(letters: DeadLetters, letter_id: str, *, letter: DeadLetter) -> bool:
    return letter.stage is not Stage.CONFLICT and await letters.replay(letter_id, letter)


async def _discard(letters: DeadLetters, letter_id: str, *, letter: DeadLetter) -> bool:
    return await letters.drop(letter_id, letter)


def _broker(redis_url: str | None, home: Path | None) -> str:
    """The broker that is named, else that of the server in the data folder, else the usual one."""
    if redis_url:
        return redis_url
    found = _discovery.read(chosen_folder(home))
    return found.broker if found and found.broker else REDIS_URL


def _with_letters(redis_url: str, work: Callable[[DeadLetters], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        letters = DeadLetters(SecretStr(redis_url))
        try:
            return await work(letters)
        finally:
            await letters.close()

    return asyncio.run(run())


async def _every(letters: DeadLetters) -> Letters:
    found: Letters = []
    while page := await letters.page(found[-1][0] if found else "-"):
        found += page
    return found


async def _found(letters: DeadLetters, letter_id: str) -> DeadLetter:
    letter = await letters.find(letter_id)
    if letter is None:
        raise NoSuchLetter(f"there is no batch {letter_id!r}; `rankscope dlq ls` lists those there are")
    return letter


def _item(letter_id: str, letter: DeadLetter) -> dict[str, object]:
    header = _parsed(letter).header
    at = datetime.fromtimestamp(letter.at_ms / 1_000, tz=UTC)
    return {
        "id": letter_id,
        "at": at.isoformat(timespec="milliseconds"),
        "stage": letter.stage.value,
        "code": letter.code,
        "project": header.project,
        "run": header.run_id,
        "rank": header.rank,
        "incarnation": letter.incarnation.hex(),
        "seq": letter.seq,
        "rows": letter.rows,
        "bytes": len(letter.payload),
        "detail": letter.detail,
    }


def _sections(letter: DeadLetter) -> dict[str, int]:
    batch = _parsed(letter)
    return {section.name: len(getattr(getattr(batch, section.name), section.key)) for section in SECTIONS}


def _parsed(letter: DeadLetter) -> Batch:
    """The batch, or an empty one where it cannot be read."""
    try:
        return Batch.FromString(letter.payload)
    except DecodeError:
        return Batch()
