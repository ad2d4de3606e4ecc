"""Decorated functions: one span a call, and everything else as it was."""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import partial
from typing import cast

import pytest

from rankscope import Run
from rankscope._tracing_options import TracingOptions
from rankscope.testing import MemoryExporter
from rankscope_proto.names import SpanKind, SpanStatus

Rows = dict[object, dict[str, object]]


def spans_of(exporter: MemoryExporter) -> Rows:
    return {row["name"]: row for row in exporter.rows("spans")}


def parent_of(rows: Rows, name: str) -> object:
    """The name of a span's parent; None: it is a root."""
    names = {row["span_id"]: row["name"] for row in rows.values()}
    return names.get(rows[name]["parent_span_id"])


def test_each_call_is_a_span_below_the_open_one_or_a_root() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op(name="add", kind="reward", step=42, attributes={"a": 1}, metrics={"tokens": 12}, rollout_id="r")
        def add(one: int, two: int) -> int:
            return one + two

        results = [add(1, 2)]
        with run.trace("rollout"):
            results.append(add(3, two=4))

    assert results == [3, 7]
    root, child, rollout = exporter.rows("spans")
    assert (root["name"], root["kind"], root["step"]) == ("add", SpanKind.REWARD.code, 42)
    assert (root["numbers"], root["metrics"], root["rollout_id"]) == ({"a": 1.0}, {"tokens": 12.0}, "r")
    assert (root["parent_span_id"], child["parent_span_id"]) == (0, rollout["span_id"])
    assert root["span_id"] != child["span_id"]
    assert [root["inputs"], root["outputs"]] == ["", ""]


def test_a_name_is_optional_and_so_are_the_brackets() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op
        def bare() -> None: ...

        @run.trace_op()
        def called() -> None: ...

        bare()
        called()

    names = [str(row["name"]) for row in exporter.rows("spans")]
    assert names == [bare.__qualname__, called.__qualname__]
    assert names[0].endswith("<locals>.bare")


def test_an_error_is_recorded_by_its_type_and_goes_on() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("fail")
        def fail() -> None:
            raise KeyError("secret")

        with pytest.raises(KeyError, match="secret"):
            fail()

    (row,) = exporter.rows("spans")
    assert (row["status"], row["error_type"], row["error_preview"]) == (SpanStatus.ERROR.code, "KeyError", "")


def test_a_preview_shows_the_arguments_by_name_and_the_result_without_the_object_or_secrets() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        class Judge:
            @run.trace_op("score", capture="preview")
            def score(self, prompt: str, *answers: str, authorization: str = "") -> dict[str, float]:
                return {"score": 1.0}

            @classmethod
            @run.trace_op("make", capture="preview")
            def make(cls, size: int) -> None: ...

        Judge().score("why", "a", "b", authorization="Bearer service-token")
        Judge.make(3)

    rows = spans_of(exporter)
    inputs = json.loads(str(rows["score"]["inputs"]))
    assert (inputs["prompt"], inputs["answers"]) == ("why", ["a", "b"])
    assert "service-token" not in str(rows["score"]["inputs"])
    assert "Judge" not in str(rows["score"]["inputs"])
    assert json.loads(str(rows["score"]["outputs"])) == {"score": 1.0}
    assert json.loads(str(rows["make"]["inputs"])) == {"size": 3}
    assert rows["make"]["outputs"] == "null"


def test_a_preview_of_a_function_without_a_signature_shows_the_arguments_as_they_came() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        assert run.trace_op("max", capture="preview")(max)([1, 2], default=0) == 2

    (row,) = exporter.rows("spans")
    assert json.loads(str(row["inputs"])) == {"args": [[1, 2]], "kwargs": {"default": 0}}


def test_arguments_that_do_not_fit_are_the_functions_own_error() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("one", capture="preview")
        def one(value: int) -> int:
            return value

        with pytest.raises(TypeError, match=r"one\(\) takes 1 positional argument"):
            cast("Callable[..., int]", one)(1, 2)

    (row,) = exporter.rows("spans")
    assert (row["status"], row["error_type"]) == (SpanStatus.ERROR.code, "TypeError")


def test_methods_of_a_class_keep_their_kind() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        class Tools:
            @run.trace_op("static")
            @staticmethod
            def static(value: int) -> int:
                return value

            @run.trace_op("of class")
            @classmethod
            def of_class(cls) -> str:
                return cls.__name__

        assert (Tools.static(1), Tools().static(2), Tools.of_class(), Tools().of_class()) == (1, 2, "Tools", "Tools")

    assert [row["name"] for row in exporter.rows("spans")] == ["static", "static", "of class", "of class"]


def test_inspect_says_of_a_decorated_function_what_it_said_before() -> None:
    def plain(one: int, *, two: str = "") -> None:
        """Does nothing."""

    async def coroutine() -> None: ...

    def generator() -> Iterator[None]:
        yield

    async def async_generator() -> AsyncGenerator[None, None]:
        yield

    checks = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    functions: tuple[Callable[..., object], ...] = (plain, coroutine, generator, async_generator)
    with Run(MemoryExporter()) as run:
        for function in functions:
            decorated = run.trace_op(function)
            assert [check(decorated) for check in checks] == [check(function) for check in checks]
            assert inspect.signature(decorated) == inspect.signature(function)
            assert (decorated.__name__, decorated.__doc__) == (function.__name__, function.__doc__)


def test_what_can_be_called_can_be_decorated() -> None:
    class Model:
        async def __call__(self, value: int) -> int:
            return value

    def double(value: int) -> int:
        return 2 * value

    exporter = MemoryExporter()
    with Run(exporter) as run:
        assert run.trace_op(partial(double, 4))() == 8
        assert run.trace_op(len)([1, 2]) == 2
        called = cast("Callable[[int], Coroutine[None, None, int]]", run.trace_op(Model()))
        assert inspect.iscoroutinefunction(called)
        assert asyncio.run(called(3)) == 3

    names = [str(row["name"]).rpartition(".")[2] for row in exporter.rows("spans")]
    assert names == ["double", "len", "Model"]


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"span_id": "b" * 16}, TypeError, "each call is a span of its own"),
        ({"inputs": {}}, TypeError, "arguments of each call"),
        ({"episode": 3}, TypeError, "rollout_id"),
        ({"kind": "banana"}, ValueError, "rollout, env_step"),
        ({"step": -1}, ValueError, "whole number"),
        ({"rank": True}, TypeError, "rank"),
        ({"capture": "full"}, ValueError, "off, preview"),
        ({"trace_id": "x"}, ValueError, "32 hex digits"),
    ],
)
def test_a_wrong_field_is_said_where_it_is_written(
    fields: dict[str, object], error: type[Exception], says: str
) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, pytest.raises(error, match=says):
        run.trace_op("a", **fields)  # pyright: ignore[reportArgumentType, reportCallIssue]  # what untyped code may do

    assert exporter.rows("spans") == []


def test_what_is_decorated_and_never_called_is_no_gap() -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(sample_rate=0.0)) as run:
        run.trace_op("never called")(len)
        linked = run.trace_op("linked", links=iter([("a" * 32, "b" * 16)]))(len)
        assert [linked([]), linked([])] == [0, 0]

    assert [row["count"] for row in exporter.rows("gaps")] == [2]


def test_links_are_those_of_every_call() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        linked = run.trace_op("linked", links=iter([("a" * 32, "b" * 16)]))(len)
        assert [linked([]), linked([])] == [0, 0]

    assert [len(cast("list[int]", row["link_span_id"])) for row in exporter.rows("spans")] == [1, 1]


@pytest.mark.parametrize("thing", [5, dict])
def test_what_is_no_function_is_refused(thing: object) -> None:
    with Run(MemoryExporter()) as run, pytest.raises(TypeError, match="function or a method"):
        run.trace_op("a")(thing)  # pyright: ignore[reportArgumentType]


def test_a_name_is_a_text() -> None:
    with Run(MemoryExporter()) as run, pytest.raises(TypeError, match="not a int"):
        run.trace_op(5)  # pyright: ignore[reportArgumentType, reportCallIssue]  # what untyped code may do


def test_ids_and_a_parent_elsewhere_can_be_given() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("around"):

        @run.trace_op("far", trace_id="0" * 31 + "a", parent_span_id="c" * 16)
        def far() -> None: ...

        @run.trace_op("apart", trace_id="0" * 31 + "b")
        def apart() -> None: ...

        far()
        apart()

    rows = spans_of(exporter)
    assert (rows["far"]["trace_lo"], rows["far"]["parent_span_id"]) == (10, int("c" * 16, 16))
    assert (rows["apart"]["trace_lo"], rows["apart"]["parent_span_id"]) == (11, 0)


def test_a_decorated_function_works_on_when_the_run_is_over() -> None:
    with Run(MemoryExporter()) as run:
        decorated = run.trace_op(abs)

    assert decorated(-1) == 1
