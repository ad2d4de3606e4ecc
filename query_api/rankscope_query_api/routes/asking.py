"""What every route asks for: its parameters, the store, the run they name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope_query_api.access import asker_of, is_foreign
from rankscope_query_api.errors import InvalidRequestError, NotFoundError, unknown
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import Launch, RunKey
from rankscope_query_api.writing import Writing

PREFIX = "/api/v1"
"""Where every route begins; of a router itself, so that the template a request is counted under is whole."""

HEAD_ONLY = "rankscope.head_only"
"""In the scope of a request: it was a HEAD, which the routes see as a GET."""

MAX_STEP = 2**63 - 1

Run = Annotated[str, Path(description="Id of the run.", min_length=1, max_length=512)]
StepNumber = Annotated[int, Path(description="Optimizer step, from 0.", ge=0, le=MAX_STEP)]
TraceId = Annotated[str, Path(description="32 hex digits.", pattern="^[0-9a-fA-F]{32}$")]


class InProject(BaseModel):
    """The parameter of every route; what is not named here is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    project: str = Field(default="default", description="The project whose data is meant.", max_length=512)


class Paged(InProject):
    """The parameters of every list."""

    limit: int = Field(default=100, ge=1, le=10_000, description="Most items in the answer.")
    after: str | None = Field(default=None, max_length=2048, description="The `next` of the page before.")


def store_of(request: Request) -> TraceStore:
    """The store that the application was made with, as the request's key may see it."""
    store: TraceStore = request.app.state.store
    return store.asked_by(asker_of(request), is_foreign=is_foreign(request))


def writing_of(request: Request) -> Writing:
    """Who writes the application's answers."""
    writing: Writing = request.app.state.writing
    return writing


def is_head(request: Request) -> bool:
    """Whether nobody will read the body of the answer, so that none need be made."""
    return bool(request.scope.get(HEAD_ONLY))


def headed(media_type: str, headers: Mapping[str, str]) -> Response:
    """The answer to a HEAD of what is streamed; how long the stream will be is said only where the headers say it.

    Args:
        media_type: Of the stream.
        headers: Its headers.
    """
    answer = Response(media_type=media_type, headers=headers)
    if "content-length" not in headers:
        del answer.headers["content-length"]  # that of no body, which nobody asked about
    return answer


async def launches_of(store: TraceStore, key: RunKey) -> Sequence[Launch]:
    """The launches of a run.

    Raises:
        NotFoundError: The project has no such run.
    """
    launches = await store.runs.launches(key)
    if not launches:
        raise unknown("run", key.run, project=key.project, known=await store.runs.run_ids(key.project))
    return launches


def launch_named(launches: Sequence[Launch], launch: str | None, *, among: Iterable[str]) -> Launch | None:
    """The launch a request means: the one it names, by id or by attempt, or the latest of `among`.

    Args:
        launches: All launches of the run, by time.
        launch: Id (32 hex digits, dashes allowed) or ordinal; None: the latest.
        among: Ids of the launches that have what is asked for.

    Raises:
        NotFoundError: The run has no such launch.
    """
    if launch is None:
        usable = set(among)
        return next((one for one in reversed(launches) if one.launch_id in usable), None)
    wanted = launch.replace("-", "").lower()
    for one in launches:
        if wanted in (one.launch_id, str(one.attempt)):
            return one
    known = ", ".join(f"{one.attempt}: {one.launch_id}" for one in launches[-5:])
    raise NotFoundError(f"no launch {launch!r} in this run", hint=f"the latest are {known}", code="unknown_launch")


def word_named(words: Sequence[str], word: str | None, *, parameter: str) -> str | None:
    """The word, which is of a vocabulary where there is one.

    Raises:
        InvalidRequestError: The vocabulary has no such word.
    """
    if word is not None and word not in words:
        raise InvalidRequestError(f"{parameter} is {word!r}", hint="name one of the expected words", expected=words)
    return word


def code_named(words: Sequence[str], word: str | None, *, parameter: str) -> int | None:
    """The code of a word of a vocabulary (its place, from 1).

    Raises:
        InvalidRequestError: The vocabulary has no such word.
    """
    named = word_named(words, word, parameter=parameter)
    return None if named is None else words.index(named) + 1


def refuse_swapped(**bounds: float | None) -> None:
    """Refuses two bounds, by name, of which the first is greater than the second.

    Raises:
        ValueError: Names both.
    """
    (least_name, least), (most_name, most) = bounds.items()
    if least is not None and most is not None and most < least:
        raise ValueError(f"{least_name} is {least}, which is more than {most_name}, {most}")
