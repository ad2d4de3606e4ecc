"""A capture configuration is one object that can be written down and read again, and says what is wrong with it."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.errors import ConfigError
from rankscope.probe.configuration import Action, CaptureConfiguration, Part, Trigger, Values
from rankscope_proto.names import Role

TEXT = st.text(min_size=1, max_size=20)
GLOBS = st.lists(TEXT, max_size=3).map(tuple)
VALUES = st.one_of(
    st.builds(Values, elements=st.integers(1, 1000), part=st.sampled_from([Part.WHOLE, Part.SAMPLE])),
    st.builds(
        Values,
        part=st.just(Part.SLICE),
        slices=st.lists(st.tuples(st.integers(), st.integers()), min_size=1, max_size=3).map(tuple),
    ),
)
TRIGGERS = st.builds(
    Trigger, node=TEXT, predicate=TEXT, action=st.sampled_from(Action), precise=st.booleans(), once=st.booleans()
)
CONFIGURATIONS = st.builds(
    CaptureConfiguration,
    name=TEXT,
    level=st.integers(0, 3),
    every=st.integers(1, 1000),
    include=GLOBS,
    exclude=GLOBS,
    roles=st.lists(st.sampled_from(Role), max_size=3).map(tuple),
    values=VALUES,
    triggers=st.lists(TRIGGERS, max_size=3).map(tuple),
    budget=st.one_of(st.none(), st.floats(0.001, 1)),
)


@given(CONFIGURATIONS)
def test_what_is_written_is_read_again_as_the_same(configuration: CaptureConfiguration) -> None:
    assert CaptureConfiguration.from_json(configuration.as_json()) == configuration


def test_what_is_left_out_has_its_default() -> None:
    read = CaptureConfiguration.from_json('{"level": 2, "triggers": [{"node": "head", "predicate": "tensor.l2 > 1"}]}')

    trigger = Trigger(node="head", predicate="tensor.l2 > 1")
    assert read == CaptureConfiguration(level=2, triggers=(trigger,))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"levle": 2}, "has no levle; it has name, level"),
        ({"level": 4}, "level 4 is not a probe level; use 0, 1, 2 or 3"),
        ({"level": "2"}, "level is '2'; write a whole number"),
        ({"level": True}, "level is True; write a whole number"),
        ({"every": 0}, "every=0 captures no step"),
        ({"every": 2.5}, "every is 2.5; write a whole number"),
        ({"every": 10**400}, "every is beyond any step; use at most 1,000,000,000"),
        ({"triggers": [{"node": "a", "predicate": "b", "steps": 10**18}]}, "steps are 1 to 1,000,000,000"),
        ({"values": {"step_bytes": 2**63}}, "step_bytes and run_bytes are 0 to"),
        ({"values": {"seed": 2**64}}, "seed has 65 bits"),
        ({"values": {"part": "slice", "slices": [[0, 1]] * 65}}, "65 slices are too many"),
        ({"include": ["a" * 2000]}, "include has a text of 2000 characters; use at most 1024"),
        ({"name": "n" * 2000}, "name has a text of 2000 characters"),
        ({"budget": 0}, "budget=0 is no share"),
        ({"include": "head"}, "include is 'head'; write a JSON list"),
        ({"include": [3]}, "include is 3; write text"),
        ({"roles": ["gradient"]}, "roles is 'gradient'; use one of weight, grad"),
        ({"triggers": [{"node": "head"}]}, "is not whole"),
        ({"triggers": [{"node": "head", "predicate": ""}]}, "has a node and a predicate"),
        ({"triggers": [{"node": "a", "predicate": "b", "once": 1}]}, "once is 1; write true or false"),
        ({"values": {"part": "half"}}, "part is 'half'; use one of whole, slice, sample"),
        ({"values": {"slices": [[0, 1]]}}, "belong to part='slice'"),
        ({"values": {"part": "slice", "slices": [[0]]}}, r"slices is \[0\]; write two whole numbers"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CaptureConfiguration.from_json(json.dumps(members))


@pytest.mark.parametrize("text", ["", "[]", "3", "{"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="JSON object"):
        CaptureConfiguration.from_json(text)


def test_words_of_a_configuration_may_be_given_as_text() -> None:
    trigger = Trigger(node="head", predicate="tensor.l2 > 1", action=cast("Any", "capture"))

    assert trigger.action is Action.CAPTURE
    assert Values(part=cast("Any", "sample")).part is Part.SAMPLE
    with pytest.raises(ConfigError, match="action is 'keep'; use one of nothing, capture, level, raise"):
        Trigger(node="head", predicate="tensor.l2 > 1", action=cast("Any", "keep"))


@pytest.mark.parametrize("every", ["10", 2.5, True, None])
def test_a_stride_that_is_no_whole_number_is_refused_also_as_an_argument(every: object) -> None:
    with pytest.raises(ConfigError, match=r"every is .*; write a whole number"):
        CaptureConfiguration(every=cast("Any", every))


@pytest.mark.parametrize("level", ["1", 1.0, True])
def test_so_is_a_level(level: object) -> None:
    with pytest.raises(ConfigError, match=r"level is .*; write a whole number"):
        CaptureConfiguration(level=cast("Any", level))
