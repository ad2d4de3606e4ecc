"""The field table is closed, and holds every name of the language."""

import pytest

from rankscope.tql.fields import FIELDS, KEYED, SCOPES, SECTION, Entity, Origin, Type
from rankscope_proto import columns

NAMED = {
    "": ["rank", "local_rank", "node", "world_size", "launch", "attempt", "process_role", "step", "microstep", "phase"],
    "run": ["id", "name", "status", "tag"],
    "tensor": [
        "name",
        "role",
        "dtype",
        "shape",
        "numel",
        "placement",
        "l2",
        "log2_hist",
        "fingerprint",
        "update_ratio",
        *("call", "sampled", "skipped"),
    ],
    "module": ["path", "type", "class"],
    "layer": ["type", "index", "path"],
    "span": [
        *("name", "kind", "status", "duration", "self_duration", "start", "end", "trace_id", "span_id", "parent_id"),
        *("depth", "thread_id", "rollout_id", "error_type", "child_count", "phase", "path"),
    ],
    "trace": ["root_name", "duration", "span_count", "error_count", "rank_count", "status"],
    "scalar": ["name", "value"],
    "gap": ["kind", "cause", "count", "start", "end"],
    "event": ["name", "kind", "severity"],
    "hit": ["breakpoint", "predicate", "name", "module", "role", "mode", "action", "count"],
    "collective": [
        *("op", "group", "group_ranks", "seq", "entry", "exit", "device", "entry_source", "exit_source", "bytes"),
        *("dtype", "shape", "reduction", "module", "phase", "wait", "wait_charged", "skew", "arrived"),
        *("enqueued", "async", "p2p", "interrupted"),
    ],
    "system": ["name", "value", "device", "time"],
}


@pytest.mark.parametrize("scope", NAMED)
def test_every_name_of_the_language_is_a_field(scope: str) -> None:
    for key in NAMED[scope]:
        assert (f"{scope}.{key}" if scope else key) in FIELDS


def test_free_keys_are_named() -> None:
    assert set(KEYED) == {"attr", "metric", "run.config", "mesh", "hit.seen"}
    assert {name.partition(".")[0] for name in KEYED} <= SCOPES


def test_a_field_of_a_row_is_made_of_columns_of_its_table() -> None:
    header = {field.name for field in columns.header_fields()}
    for of in FIELDS.values():
        for entity, field in of.items():
            if field.origin is Origin.ROW and entity in SECTION:
                assert set(field.column) <= header | {one.name for one in SECTION[entity].fields}


def test_what_is_looked_up_may_be_missing_and_clashes_with_no_column() -> None:
    stored = {field.name for section in columns.SECTIONS for field in section.fields}
    for of in FIELDS.values():
        for field in of.values():
            if field.origin is not Origin.ROW:
                assert field.nullable
                assert len(field.column) == 1
                assert field.column[0] not in stored


def test_a_name_means_one_thing_of_all_rows() -> None:
    for name, of in FIELDS.items():
        kinds = {field.type for field in of.values()}
        assert len(kinds) == 1, name
        assert Type.ATTRIBUTE not in kinds


def test_traces_and_runs_can_be_told_apart_and_ordered() -> None:
    for entity, names in ((Entity.TRACE, ("trace.id", "run.id", "time")), (Entity.RUN, ("run.id", "time"))):
        assert all(entity in FIELDS[name] for name in names)
