"""What a row does not hold itself is looked up: by its own keys, within its project, and only where it is asked for."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from rankscope.tql import typed
from rankscope.tql.fields import Entity, Origin, Type
from rankscope_proto.names import ProcessRole, RunStatus, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.layers import Layers
from rankscope_query_api.tql_sql.parameters import Parameters
from rankscope_query_api.tql_sql.relations import KEYS, relation
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import MS, START, Row, Writer, heard
from tests.query_api.tql.typed_rows import TypedRows, field, text

CONFIG = (
    '{"lr":0.001,"optim":{"name":"adamw","betas":[0.9,0.95],"fused":true},"optim.name":"flat","seed":null,"λ \'k":7}'
)
MODULES = (
    ("", "", "Gpt", "", None),
    ("layers", "", "ModuleList", "other", None),
    ("layers.3", "layers", "Block", "other", 3),
    ("layers.3.experts", "layers.3", "ModuleList", "expert", 3),
    ("layers.3.experts.3", "layers.3.experts", "Expert", "expert", 3),
    ("layers.3.experts.3.w1", "layers.3.experts.3", "Linear", "expert", 3),
    ("layers.12.stages.5.attn", "layers.12.stages.5", "Attention", "attention", 5),
    ("layers.12.stages.5", "layers.12.stages", "Stage", "other", 5),
    ("layers.12.stages", "layers.12", "ModuleList", "other", 12),
    ("layers.12", "layers", "Block", "other", 12),
    ("head", "", "Linear", "head", None),
    ("encoder.encoder_layer_0", "encoder", "EncoderBlock", "other", 0),
    ("encoder.encoder_layer_0.mlp", "encoder.encoder_layer_0", "MLP", "mlp", 0),
    ("stage_007", "", "Stage", "other", 7),
    ("stage_010.conv2", "stage_010", "Conv", "conv", 10),
    ("stage_010", "", "Stage", "other", 10),
)


def _span(number: int, parent: int, name: str, /, *, start: int, duration: int, **more: Any) -> Row:
    shared = {"trace_hi": 7, "trace_lo": 1, "kind": 1, "status": SpanStatus.OK.code, "step": 5, "path": name}
    known = {"span_id": number, "parent_span_id": parent, "name": name, "start": START + start, "duration": duration}
    return {**shared, **known, **more}


def _trainer(rank: int) -> Iterator[pb.Batch]:
    writer = Writer("study", rank, launch=b"\x02" * 16, world_size=2)
    said: Row = {
        "status": RunStatus.RUNNING.code,
        "name": "otter",
        "config": CONFIG,
        "tags": ["ddp", "a"],
        "start": START,
    }
    tensors = [{"name": f"{path}.weight", "module": path, "role": 1, "step": 1, "time": START, "shape": [2, 3]} for
               path, *_ in MODULES]  # fmt: skip
    modules = [dict(zip(("path", "parent", "class", "type", "layer_index"), one, strict=True)) | {"time": START} for
               one in MODULES]  # fmt: skip
    spans = [
        _span(1, 0, "root", start=0, duration=100),
        _span(2, 1, "child", start=10, duration=30, status=SpanStatus.ERROR.code, step=None),
        _span(3, 1, "child", start=50, duration=-40),
        _span(4, 2, "leaf", start=12, duration=60),
        _span(9, 77, "orphan", start=-5, duration=1, trace_lo=2, status=SpanStatus.INTERRUPTED.code),
    ]
    first = writer.seal(
        run_info=[said], tensor_stats=tensors, modules=modules if rank == 0 else [], spans=spans if rank == 0 else []
    )
    first.header.mesh_axis.extend(["dp", "tp"])
    first.header.mesh_coordinate.extend([rank, 4])
    yield first
    ended: Row = {
        **said,
        "status": (RunStatus.FINISHED, RunStatus.FAILED)[rank].code,
        "tags": ["ddp"],
        "end": START + 9,
    }
    copy = _span(2, 1, "child", start=10, duration=5, status=SpanStatus.INTERRUPTED.code, step=None)
    yield writer.seal(run_info=[ended], sealed_ns=START + MS, spans=[copy] if rank == 0 else [])


def _others() -> Iterator[pb.Batch]:
    early = Writer("study", 0, launch=b"\x01" * 16, world_size=1)
    late: Row = {"name": "loss", "step": 0, "value": 1.0, "time": START}
    crashed: Row = {"status": RunStatus.FAILED.code, "name": "", "start": START - MS}
    yield early.seal(sealed_ns=START - MS, run_info=[crashed], scalars=[late])
    living = Writer("living", 3, launch=b"\x03" * 16, role=ProcessRole.ACTOR)
    same_trace = _span(1, 0, "elsewhere", start=0, duration=1)
    said: Row = {"status": RunStatus.RUNNING.code, "name": "", "start": START}
    yield living.seal(sealed_ns=START + 2 * MS, run_info=[said], spans=[same_trace], scalars=[late])
    secret = Writer("study", 0, project="other", launch=b"\x02" * 16)
    foreign: Row = {
        "status": RunStatus.FAILED.code,
        "name": "secret",
        "config": '{"lr":9}',
        "tags": ["secret"],
        "start": 1,
    }
    module: Row = {"path": "head", "class": "Secret", "type": "secret", "time": START + 10**12}
    spans = [_span(number, 1, "secret", start=-99, duration=10**9, trace_lo=lo) for number in (5, 6) for lo in (1, 2)]
    made = secret.seal(sealed_ns=START - 10**12, run_info=[foreign], modules=[module], spans=spans)
    made.header.mesh_axis.append("pp")
    made.header.mesh_coordinate.append(1)
    yield made


@pytest.fixture(scope="module")
def rows(front_process: FrontProcess) -> Iterator[TypedRows]:
    """Two runs, one of two launches, beside another project's with the same names and ids."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *(made for rank in (0, 1) for made in _trainer(rank)), *_others())
    heard(store, seconds_ago=1)
    yield TypedRows(store.client)
    store.drop()


def of_scalars(name: str) -> list[typed.Value]:
    """A field of the scalars, behind the run."""
    return [field("run.id", Entity.SCALAR), field(name, Entity.SCALAR)]


def test_a_run_is_called_and_tagged_as_its_processes_said_last(rows: TypedRows) -> None:
    assert rows.ask(Entity.SCALAR, *of_scalars("run.name")) == [("study", "otter"), ("living", None)]
    assert rows.ask(Entity.SCALAR, *of_scalars("run.tag")) == [("study", ["ddp"]), ("living", [])]


def test_a_run_stands_where_the_worst_trainer_of_its_latest_launch_stands(rows: TypedRows) -> None:
    assert rows.ask(Entity.SCALAR, *of_scalars("run.status")) == [
        ("study", RunStatus.FAILED.code),
        ("living", RunStatus.RUNNING.code),
    ]


def test_a_run_that_fell_silent_was_interrupted(front_process: FrontProcess) -> None:
    store = Store(front_process.url)
    migrate(store.client)
    said: Row = {"status": RunStatus.RUNNING.code, "start": START}
    insert(store.client, Writer("study", 0).seal(run_info=[said]))

    heard(store, seconds_ago=5)
    living = TypedRows(store.client).column(Entity.RUN, field("run.status", Entity.RUN))
    heard(store, seconds_ago=600)
    silent = TypedRows(store.client).column(Entity.RUN, field("run.status", Entity.RUN))
    store.drop()

    assert (living, silent) == ([RunStatus.RUNNING.code], [RunStatus.INTERRUPTED.code])


def test_a_list_contains_its_items_and_one_without_any_does_not_exist(rows: TypedRows) -> None:
    tag, run = field("run.tag", Entity.SCALAR), field("run.id", Entity.SCALAR)

    assert rows.column(Entity.SCALAR, run, where=typed.Contains(tag, text("ddp"))) == ["study"]
    assert rows.column(Entity.SCALAR, run, where=typed.Contains(tag, text("secret"))) == []
    assert rows.column(Entity.SCALAR, run, where=typed.Opposite(typed.Exists(tag))) == ["living"]


def test_launches_of_a_run_are_counted_by_their_first_batch(rows: TypedRows) -> None:
    attempt = field("attempt", Entity.TENSOR)

    assert rows.ask(Entity.SCALAR, *of_scalars("attempt")) == [("study", 0), ("living", 0)]
    assert set(rows.column(Entity.TENSOR, attempt)) == {1}
    assert len(rows.column(Entity.TENSOR, attempt, run="study")) == 2 * len(MODULES)


def test_a_coordinate_is_that_of_the_rows_own_process(rows: TypedRows) -> None:
    rank = field("rank", Entity.TENSOR)
    asked = [rank, *(typed.Key("mesh", axis, Type.INTEGER) for axis in ("dp", "tp", "pp"))]

    assert set(rows.ask(Entity.TENSOR, *asked)) == {(0, 0, 4, None), (1, 1, 4, None)}
    assert rows.column(Entity.SCALAR, typed.Key("mesh", "dp", Type.INTEGER)) == [None, None]


def test_a_tensors_module_is_known_by_its_path(rows: TypedRows) -> None:
    names = ("module.path", "module.class", "module.type", "layer.path")

    found = rows.ask(Entity.TENSOR, *(field(name, Entity.TENSOR) for name in names), run="study")

    blocks = {"layers.3", "layers.12", "layers.12.stages.5", "encoder.encoder_layer_0", "stage_007", "stage_010"}
    layers = {path: path if path in blocks else None for path, *_ in MODULES}
    layers |= {path: "layers.3" for path in layers if path.startswith("layers.3.")}
    layers |= {"layers.12.stages": "layers.12", "layers.12.stages.5.attn": "layers.12.stages.5"}
    layers |= {"encoder.encoder_layer_0.mlp": "encoder.encoder_layer_0", "stage_010.conv2": "stage_010"}
    wanted = [(path or None, known, kind or None, layers[path]) for path, _, known, kind, _ in MODULES]
    assert found == [one for one in wanted for _ in range(2)]
    # A profile puts the same modules into the same layers.
    columns = ("path", "parent", "class", "type", "layer_index")
    described = [dict[str, Any](zip(columns, one, strict=True)) for one in MODULES]
    profiled = {path: layer for path in layers if (layer := Layers(described).of(path)).index is not None}
    assert {path: layer.path for path, layer in profiled.items()} == {p: at for p, at in layers.items() if at}


def test_a_trace_counts_a_span_that_is_stored_twice_once(rows: TypedRows) -> None:
    names = ("root_name", "duration", "span_count", "error_count", "rank_count", "status")
    asked = [field(f"trace.{name}", Entity.SPAN) for name in names]

    found = set(rows.ask(Entity.SPAN, field("run.id", Entity.SPAN), *asked))

    assert found == {
        ("study", "root", 100, 4, 1, 1, SpanStatus.ERROR.code),
        ("study", None, 1, 1, 0, 1, SpanStatus.INTERRUPTED.code),
        ("living", "elsewhere", 1, 1, 0, 1, SpanStatus.OK.code),
    }


def test_a_span_knows_its_children_and_the_time_that_they_leave_it(rows: TypedRows) -> None:
    asked = [field(f"span.{name}", Entity.SPAN) for name in ("span_id", "child_count", "self_duration")]

    found = set(rows.ask(Entity.SPAN, *asked, run="study"))

    # The copy of span 2 is a row with its own duration; a negative child takes nothing.
    assert found == {(1, 2, 70), (2, 1, 0), (3, 0, 0), (4, 0, 60), (9, 0, 1)}


@pytest.mark.parametrize(
    ("key", "kind", "wanted"),
    [
        ("lr", Type.FLOAT, 0.001),
        ("lr", Type.STRING, None),
        ("lr", Type.ATTRIBUTE, "0.001"),
        ("optim.name", Type.STRING, "flat"),
        ("optim.fused", Type.STRING, "true"),
        ("optim.fused", Type.FLOAT, None),
        ("optim.betas", Type.STRING, "[0.9,0.95]"),
        ("optim.betas.0", Type.ATTRIBUTE, None),
        ("seed", Type.ATTRIBUTE, None),
        ("λ 'k", Type.FLOAT, 7.0),
        ("", Type.ATTRIBUTE, None),
        ("...", Type.ATTRIBUTE, None),
        ("nowhere", Type.FLOAT, None),
    ],
)
def test_a_setting_is_found_by_its_key_or_its_path(rows: TypedRows, key: str, kind: Type, wanted: object) -> None:
    value = typed.Key("run.config", key, kind)

    assert rows.column(Entity.SCALAR, value) == [wanted, None]
    assert rows.column(Entity.RUN, value) == [wanted, None]
    there = rows.column(Entity.SCALAR, field("run.id", Entity.SCALAR), where=typed.Exists(value))
    assert there == ([] if wanted is None else ["study"])


def test_runs_are_rows_in_the_order_of_their_start(rows: TypedRows) -> None:
    names = ("project", "run.id", "run.name", "time", "run.tag")

    found = rows.ask(Entity.RUN, *(field(name, Entity.RUN) for name in names))

    assert found == [
        ("default", "study", "otter", START - MS, ["ddp"]),
        ("default", "living", None, START + 2 * MS, []),
    ]


def test_traces_are_rows_in_the_order_of_their_start(rows: TypedRows) -> None:
    names = ("run.id", "trace.id", "trace.root_name", "time", "step", "run.name")

    found = rows.ask(Entity.TRACE, *(field(name, Entity.TRACE) for name in names))

    trace = 7 << 64
    assert found == [
        ("study", trace + 2, None, START - 5, 5, "otter"),
        ("living", trace + 1, "elsewhere", START, 5, None),
        ("study", trace + 1, "root", START, 5, "otter"),
    ]


def test_a_trace_is_found_by_its_id(rows: TypedRows) -> None:
    same = typed.Compare("==", field("trace.id", Entity.TRACE), typed.Constant(f"{7:016x}{1:016x}", Type.ID, "String"))

    assert rows.column(Entity.TRACE, field("trace.root_name", Entity.TRACE), where=same) == ["elsewhere", "root"]


def test_a_shape_is_written_as_in_python(rows: TypedRows) -> None:
    assert set(rows.column(Entity.TENSOR, field("tensor.shape", Entity.TENSOR))) == {"[2, 3]"}


def test_nothing_is_joined_that_nobody_asks_for(rows: TypedRows) -> None:
    _, plain = rows.statement(Entity.SPAN, [field("span.name", Entity.SPAN), field("run.id", Entity.SPAN)])
    statement, scope = rows.statement(
        Entity.SPAN, [field("run.name", Entity.SPAN), field("run.status", Entity.SPAN), field("attempt", Entity.SPAN)]
    )

    assert not plain.joined
    assert list(scope.joined) == ["run", "launch"]
    assert statement.count("LEFT JOIN") == 3


@pytest.mark.parametrize("run", [None, "study"])
@pytest.mark.parametrize("origin", KEYS)
def test_every_table_is_read_within_the_project_and_run(origin: Origin, run: str | None) -> None:
    written = relation(origin, project="default", run=run, parameters=Parameters()).sql(dialect="clickhouse")
    # sqlglot knows no parameters of this aggregate.
    found = sqlglot.parse_one(written.replace("groupArraySorted(2)(", "groupArraySorted("), dialect="clickhouse")

    selects = [select for select in found.find_all(exp.Select) if isinstance(select.args["from_"].this, exp.Table)]

    assert selects
    for select in selects:
        restricted = select.args["prewhere"].sql(dialect="clickhouse")
        assert "project = {project: String}" in restricted
        assert ("run_id = {run: String}" in restricted) == (run is not None)
        # An alias is what a condition means, before the column.
        named = {one.alias: one.this for one in select.expressions if isinstance(one, exp.Alias)}
        assert not named.keys() & {"project", "run_id"}
