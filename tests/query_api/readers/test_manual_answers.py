"""Every query of the manual is explained and answered on the command line, with the answer that is known."""

import json
from collections.abc import Iterator

import pytest

from rankscope.cli import main
from rankscope.client._values import decoded
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.conftest import serving
from tests.query_api.tql import examples, nightly, training
from tests.query_api.tql.examples import Example, Item
from tests.query_api.tql.training import MS
from tests.tql.test_manual import EXAMPLES as QUERIES


def _whole(item: Item) -> tuple[object, ...]:
    return tuple(item.values())


def _tensor(item: Item) -> tuple[object, ...]:
    return item["step"], item["rank"], item["role"], item["name"]


def _span(item: Item) -> tuple[object, ...]:
    return item["name"], int(item["trace_id"][16:], 16)


def _trace(item: Item) -> tuple[object, ...]:
    return int(item["trace_id"][16:], 16), item["duration_ns"], item["error_count"]


FIRST, SECOND = nightly.ROLLOUTS
NAN, INFINITE, WEIGHT = (3, 1, "grad", "w"), (4, 1, "grad", "w"), (4, 0, "weight", "w")

OF_NIGHTLY: dict[str, Example] = {
    "tensor.nonfinite_count > 0 | first": (_tensor, [NAN]),
    'hit.breakpoint == "big gradient" and hit.seen."tensor.l2" > 100 | count() by rank, hit.name': (
        _whole,
        [(1, "w", 2)],
    ),
    "collective.wait_charged > 5ms | sum(collective.wait_charged), count() by rank, collective.op": (
        _whole,
        [(1, "all_reduce", 50 * MS, 1)],
    ),
    "collective.bytes >= 1MiB and collective.exit - collective.entry > 10ms"
    " | select step, rank, collective.seq, collective.wait": (_whole, [(4, 0, 1, 50 * MS)]),
    'system.name == "memory.used" | max(system.value) by node': (_whole, [("node-0", 6e9)]),
    "trace.error_count > 0 and trace.duration > 1s": (_trace, [(FIRST, 1500 * MS, 1)]),
    'run.status == "failed" and run.tag contains "nightly"': (lambda item: (item["run_id"],), [(nightly.RUN,)]),
    "tensor.nonfinite_count > 0 and span.duration > 1s": (_tensor, [NAN]),
    "tensor.l2 / tensor.numel > 0.5 or not (rank == 0)": (_tensor, [NAN, INFINITE, WEIGHT]),
    'span.name !~ "step|forward" && span.duration in 1ms..1s': (
        _span,
        [("search", FIRST), ("score", FIRST), ("rollout", SECOND), ("search", SECOND)],
    ),
    'tensor.role in ["grad", "weight"] and missing(tensor.l2)': (_tensor, [NAN]),
    "isnan(tensor.mean) or isinf(tensor.absmax)": (_tensor, [NAN, INFINITE]),
    'coalesce(attr.device, span.name) == "cuda:0"': (_span, [("search", FIRST)]),
    'span.start > "2026-11-29T12:00:00Z"': (lambda item: (item["step"], item["rank"]), [(4, 0), (4, 1)]),
    'scalar.name == "loss" | avg(scalar.value), stddev(scalar.value) every 10 steps': (
        lambda item: (item["step"], item["avg"], round(item["stddev"], 9)),
        [(0, 4.5, round(8.25**0.5, 9)), (10, 10.5, 0.5)],
    ),
    'span.name == "step" | rate(), quantile(span.duration, 0.75) by rank | where rate > 0': (
        lambda item: (item["rank"], round(item["rate"], 6), item["quantile_ns"]),
        [(0, 0.4, 1525 * MS), (1, 0.4, 1150 * MS)],
    ),
    'tensor.role == "activation" | across layer: slope(tensor.rms) by step': (_whole, [(3, 2.0), (4, 0.5)]),
    "exists(span.name) | count() by span.kind, span.status | order by count desc": (
        _whole,
        [
            *[("system", "ok", 3), ("rollout", "ok", 2)],
            *[("tool", "ok", 1), ("tool", "error", 1), ("reward", "ok", 1), ("system", "error", 1)],
        ],
    ),
    'span.kind == "rollout" > span.kind == "tool"': (_span, [("search", FIRST), ("search", SECOND)]),
    'span.status == "error" << span.kind == "rollout"': (_span, [("rollout", FIRST)]),
    'span.kind == "rollout" !>> span.status == "error"': (lambda item: (item["name"], item["rank"]), [("step", 1)]),
    '{span.kind == "rollout"} and {span.status == "error"}': (_trace, [(FIRST, 1500 * MS, 1)]),
    '{span.kind == "rollout"} without {span.kind == "reward"}': (_trace, [(SECOND, 200 * MS, 0)]),
}
"""The manual's examples beyond those of the language, asked of the run that failed in the night."""

OF_TRAINING = {text.partition("#")[0].strip(): example for text, example in examples.EXAMPLES.items()}
KNOWN = {
    **{text: (nightly.RUN, example) for text, example in OF_NIGHTLY.items()},
    **{text: (training.RUN, example) for text, example in OF_TRAINING.items()},
}


@pytest.fixture(scope="module")
def url(front_process: FrontProcess) -> Iterator[str]:
    """Address of a service over both runs."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *training.batches(), token="training")
    insert(store.client, *nightly.batches(), token="nightly")
    with serving(store) as address:
        yield address
    store.drop()


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_of_the_manual_is_explained_and_has_the_answer_that_is_known(
    text: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, (looked_at, known) = KNOWN[text]

    is_explained = main(["explain", text, "--run", run, "--json", "--url", url])
    explained = json.loads(capsys.readouterr().out)
    is_answered = main(["query", text, "--run", run, "--json", "--url", url])
    answer = json.loads(capsys.readouterr().out)

    assert (is_explained, is_answered) == (0, 0)
    assert explained["sql"].startswith(("SELECT", "WITH"))
    assert [looked_at(decoded(item)) for item in answer["items"]] == known
    assert answer["total"] == len(known) > 0


def test_the_examples_of_the_language_are_in_the_manual() -> None:
    assert set(OF_TRAINING) <= set(QUERIES)
