"""What a run's detail says beside its launches: its latest step, what went wrong, what is open, who fell silent."""

import httpx

from rankscope_proto.names import GapClass, ProcessRole, RunStatus, Severity, SpanKind
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.routes.runs import TRACES_SHOWN
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api import story
from tests.query_api.asking import RUN, get
from tests.query_api.batches import MS, START, Row, S, Writer, heard

RUNNING: Row = {"status": RunStatus.RUNNING.code, "start": START}


def stack(heartbeat: int, *names: str) -> Row:
    """A heartbeat's row."""
    ids, starts = list(range(1, len(names) + 1)), [heartbeat - MS] * len(names)
    return {
        "heartbeat": heartbeat,
        "thread": "MainThread",
        "stack_span_id": ids,
        "stack_name": list(names),
        "stack_start": starts,
        "step": 7,
    }


async def test_the_latest_step_is_in_the_detail(api: httpx.AsyncClient) -> None:
    assert (await get(api, RUN))["last_step"] == story.STEPS - 1
    assert (await get(api, f"/api/v1/runs/{story.OTHER_RUN}"))["last_step"] is None


async def test_warnings_and_conflicts_are_shown_the_latest_first_and_mere_information_is_not(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    def event(offset: int, kind: str, severity: Severity) -> Row:
        return {"time": START + offset, "kind": kind, "name": kind, "severity": severity.code, "payload": "{}"}

    events = [
        event(1, "note", Severity.INFO),
        event(2, "rank_conflict", Severity.INFO),
        event(3, "alert", Severity.ERROR),
        event(4, "disk", Severity.WARNING),
    ]
    insert(own.client, Writer(story.RUN, 0).seal(run_info=[RUNNING], events=events))

    shown = (await get(api_of_own, RUN))["events"]

    assert [(one["kind"], one["severity"]) for one in shown] == [
        *(("disk", "warning"), ("alert", "error"), ("rank_conflict", "info"))
    ]
    assert shown[0]["rank"] == 0


async def test_open_spans_are_those_of_the_last_heartbeat_and_gone_ones_are_not_shown(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    def rank(number: int, *, last_sealed: int) -> list[pb.Batch]:
        writer = Writer(story.RUN, number)
        beats = [stack(START, "step"), stack(START + 5 * S, "step", "backward")]
        return [writer.seal(run_info=[RUNNING], open_spans=beats), writer.seal(sealed_ns=last_sealed)]

    ended = Writer(story.RUN, 2).seal(run_info=[{**RUNNING, "end": START + S}], open_spans=[stack(START, "step")])
    insert(own.client, *rank(0, last_sealed=START + 6 * S), *rank(1, last_sealed=START + 60 * S), ended)

    (shown,) = (await get(api_of_own, RUN))["open_spans"]

    assert (shown["rank"], shown["step"], shown["thread"]) == (0, 7, "MainThread")
    assert [span["name"] for span in shown["stack"]] == ["step", "backward"]
    assert shown["heartbeat_ns"] == str(START + 5 * S)


async def test_open_spans_say_in_which_trace_they_are_where_the_heartbeat_does(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    told = {"stack_trace_hi": [1], "stack_trace_lo": [2], "stack_kind": [SpanKind.TOOL.code]}
    writers = [Writer(story.RUN, 0), Writer(story.RUN, 1)]
    beats: list[Row] = [{**stack(START, "search"), **told}, stack(START, "step")]
    insert(own.client, *(writer.seal(open_spans=[beat]) for writer, beat in zip(writers, beats, strict=True)))

    stacks = [shown["stack"][0] for shown in (await get(api_of_own, RUN))["open_spans"]]

    assert [(span["name"], span["kind"], span["trace_id"]) for span in stacks] == [
        ("search", "tool", f"{1:016x}{2:016x}"),
        ("step", "", None),
    ]


async def test_the_latest_traces_are_in_the_detail_as_the_list_has_them(api: httpx.AsyncClient) -> None:
    detail = await get(api, RUN)
    listed = await get(api, f"{RUN}/traces", limit=TRACES_SHOWN)

    assert detail["traces"] == listed["items"]
    assert len(detail["traces"]) == TRACES_SHOWN


async def test_a_run_ends_with_its_trainers_whatever_became_of_a_worker(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    worker = Writer(story.RUN, 1, role=ProcessRole.WORKER)
    trainer = Writer(story.RUN, 0)
    insert(own.client, worker.seal(run_info=[RUNNING]), trainer.seal(run_info=[{**RUNNING, "end": START + S}]))

    assert (await get(api_of_own, RUN))["end_ns"] == str(START + S)


async def test_no_rank_is_missing_of_what_came_over_http(own: Store, api_of_own: httpx.AsyncClient) -> None:
    insert(own.client, Writer(story.RUN, -1, world_size=1, role=ProcessRole.CLIENT).seal(run_info=[RUNNING]))

    (launch,) = (await get(api_of_own, RUN))["launch_list"]

    assert (launch["ranks"], launch["missing_ranks"]) == ([], [])


async def test_a_process_that_fell_silent_without_an_end_reads_as_interrupted_until_it_speaks(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer = Writer(story.RUN, 0)
    insert(own.client, writer.seal(run_info=[RUNNING]))
    heard(own, seconds_ago=1)
    before = await get(api_of_own, RUN)
    heard(own, seconds_ago=90)

    silent = await get(api_of_own, RUN)
    (listed,) = (await get(api_of_own, "/api/v1/runs"))["items"]
    heard(own, seconds_ago=1)
    after = await get(api_of_own, RUN)

    assert (before["status"], before["silent_since"]) == ("running", None)
    assert silent["status"] == listed["status"] == silent["processes"][0]["status"] == "interrupted"
    assert silent["silent_since"] == listed["silent_since"] == silent["processes"][0]["silent_since"] is not None
    assert (after["status"], after["silent_since"]) == ("running", None)


async def test_a_process_that_said_its_end_stays_what_it_said(own: Store, api_of_own: httpx.AsyncClient) -> None:
    finished = {**RUNNING, "status": RunStatus.FINISHED.code, "end": START + S}
    insert(own.client, Writer(story.RUN, 0).seal(run_info=[finished]))
    heard(own, seconds_ago=90)

    run = await get(api_of_own, RUN)

    assert (run["status"], run["silent_since"]) == ("finished", None)


async def test_a_gap_says_its_details(own: Store, api_of_own: httpx.AsyncClient) -> None:
    def gap(detail: str) -> Row:
        return {"class": GapClass.LOST.code, "cause": "refused", "data_kind": "spans", "start": START, "detail": detail}

    insert(own.client, Writer(story.RUN, 0).seal(gaps=[gap("spans.name: too long"), gap("header.rank: -2"), gap("")]))

    (shown,) = (await get(api_of_own, RUN))["gaps"]

    assert shown["details"] == ["header.rank: -2", "spans.name: too long"]


async def test_an_interval_that_is_over_is_not_shown_as_one_that_goes_on(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    begun: Row = {
        "class": GapClass.NOT_CAPTURED.code,
        "cause": "level",
        "data_kind": "tensor_stats",
        "start": START,
        "detail": "level 1: no values",
    }
    over: Row = {**begun, "step_to": 9, "end": START + S}
    another: Row = {**begun, "cause": "sampled", "step_stride": 10}
    insert(own.client, Writer(story.RUN, 0).seal(gaps=[begun, over, another]))

    shown = {gap["cause"]: gap for gap in (await get(api_of_own, RUN))["gaps"]}

    assert (shown["level"]["step_to"], shown["level"]["end_ns"]) == (9, str(START + S))
    assert (shown["sampled"]["step_to"], shown["sampled"]["end_ns"]) == (None, None)
