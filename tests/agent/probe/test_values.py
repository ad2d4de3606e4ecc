"""Kept values are those the program computed, bit for bit, and what is not kept is said."""

import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from rankscope.errors import NotCaptured
from rankscope.probe.configuration import Part, Values
from rankscope.probe.depth import Key
from rankscope.probe.elements import sample_index
from rankscope.probe.kept import Kept
from rankscope.probe.meters import Device, device_of
from rankscope.probe.ports import OpenStep
from rankscope.probe.rows import Subject
from rankscope.probe.torch_inner import numbers
from rankscope.probe.values import MOST_NAMED, Keeper
from rankscope.testing import ManualClock
from rankscope_proto.names import GapCause, Phase, Role
from rankscope_proto.sections_probe import CHUNK_BYTES
from tests.agent.probe.devices import HostAsDevice
from tests.agent.probe.trainings import Recorded, Row

WEIGHT = Subject("head.weight", "head", None, "", Role.WEIGHT.code)
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
]
FORWARD = Phase.FORWARD.code


def opened(step: int, microstep: int = 0) -> OpenStep:
    """A step that is open; a keeper asks it for its numbers alone."""
    return cast("OpenStep", SimpleNamespace(step=step, microstep=microstep))


class Held:
    """A recording whose items nobody takes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.items: list[object] = []

    def append(self, item: object) -> None:
        self.items.append(item)


def keys_of(node: str, roles: object) -> Sequence[Key]:
    return [(node, Role.WEIGHT.code)]


class Keeping:
    """A keeper over a run that records into memory."""

    def __init__(self, values: Values | None = None, device: Device | None = None) -> None:
        self.recorded = Recorded()
        recording = cast("Any", self.recorded.run)._recording

        def stand_in(device_of_tensor: torch.device) -> Device | None:
            return device_of(device_of_tensor) if device is None else device

        self.keeper = Keeper(recording, keys_of, values=values, device_for=stand_in)

    def keep(self, *tensors: Tensor, subject: Subject = WEIGHT, step: int = 0) -> list[Kept | None]:
        """Keep tensors in a step."""
        self.keeper.begin(opened(step))
        kept = [self.keeper.keep(subject, one, phase=FORWARD, microstep=0, cause="nan") for one in tensors]
        self.keeper.end()
        return kept

    def rows(self, section: str = "captures") -> list[Row]:
        """The rows so far; ends the run."""
        self.keeper.close()
        return self.recorded.rows(section)


def bits(dtype: torch.dtype, *shape: int) -> Tensor:
    """A tensor of any bits: NaNs with payloads among them; of bool, the two it has."""
    flat = torch.randint(0, 2 if dtype is torch.bool else 256, (*shape, dtype.itemsize), dtype=torch.uint8)
    return flat.view(dtype).view(shape)


def ints(tensor: Tensor) -> list[int]:
    """The elements of a vector of whole numbers."""
    return [int(number) for number in numbers(tensor)]


def raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor, the plain way."""
    return bytes(ints(tensor.contiguous().reshape(-1).view(torch.uint8))) if tensor.numel() else b""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("device", [None, HostAsDevice()], ids=["host", "device"])
def test_the_bytes_of_every_type_and_shape_are_kept_as_they_are(dtype: torch.dtype, device: Device | None) -> None:
    keeping = Keeping(device=device)
    tensors = [bits(dtype, 3, 5), bits(dtype), bits(dtype, 0, 2), bits(dtype, 4, 3).t()]

    kept = keeping.keep(*tensors)

    for row, tensor, own in zip(keeping.rows(), tensors, kept, strict=True):
        assert own is not None
        assert row["data"] == raw(tensor) == raw(own.values())
        assert row["dtype"] == str(tensor.dtype).removeprefix("torch.") == own.dtype
        assert tuple(row["shape"]) == tuple(row["full_shape"]) == tuple(tensor.shape) == own.shape
        assert (row["bytes"], row["chunk"], row["chunks"], row["step"], row["cause"]) == (
            *(len(raw(tensor)), 0, 1, 0),
            "nan",
        )
        digest = hashlib.blake2b(raw(tensor), digest_size=16).hexdigest()
        assert f"{row['digest_hi']:016x}{row['digest_lo']:016x}" == digest == own.digest()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_slice_and_a_sample_have_the_elements_that_were_asked_for(dtype: torch.dtype) -> None:
    tensor = bits(dtype, 6, 7)
    slices = Values(part=Part.SLICE, slices=((1, -1), (2, 100)))
    sample = Values(part=Part.SAMPLE, elements=10, seed=3)
    index = ints(sample_index(42, 10, seed=3))

    (sliced,), (sampled,) = (Keeping(values).keep(tensor) for values in (slices, sample))

    assert sliced is not None
    assert sampled is not None
    assert raw(sliced.values()) == raw(tensor[1:-1, 2:])
    assert [raw(one) for one in sampled.values()] == [raw(tensor[at // 7, at % 7]) for at in index]


def test_values_are_those_of_the_moment_and_the_callers_own() -> None:
    keeping, tensor = Keeping(), torch.ones(4)

    (kept,) = keeping.keep(tensor)
    tensor.zero_()
    assert kept is not None
    kept.values().zero_()

    assert numbers(kept.values()) == [1.0] * 4
    assert keeping.rows()[0]["data"] == raw(torch.ones(4))


def test_a_gradient_path_and_a_conjugate_view_make_no_difference() -> None:
    keeping = Keeping()
    tensor = torch.tensor([1 + 2j], requires_grad=True)

    (kept,) = keeping.keep(tensor.conj())

    assert kept is not None
    assert not kept.values().requires_grad
    assert raw(kept.values()) == raw(torch.tensor([1 - 2j]))


@pytest.mark.parametrize(("amount", "elements"), [(1, 1), (10, 10), (1000, 7), (2**40, 5)])
def test_a_sample_is_the_documented_rule_and_spreads_over_the_tensor(amount: int, elements: int) -> None:
    def expected(seed: int, i: int) -> int:
        low, high = i * amount // elements, (i + 1) * amount // elements
        word = (seed * 0x9E3779B97F4A7C15 + i) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word = (word ^ word >> shift) * factor % 2**64
        return low + ((word ^ word >> 31) & 2**63 - 1) % (high - low)

    for seed in (0, 1, -5, 2**70):
        index = ints(sample_index(amount, elements, seed=seed))
        assert index == [expected(seed, i) for i in range(elements)]
        assert index == sorted(set(index))
    assert ints(sample_index(1000, 7, seed=1)) == [67, 231, 415, 476, 669, 737, 971]


def test_a_sample_leaves_the_programs_random_numbers_alone() -> None:
    before = torch.get_rng_state()

    Keeping(Values(part=Part.SAMPLE, elements=3)).keep(torch.ones(100))

    assert torch.equal(torch.get_rng_state(), before)


def test_large_content_travels_in_chunks_and_is_whole_again() -> None:
    keeping = Keeping()
    tensor = bits(torch.uint8, 2 * CHUNK_BYTES + 17)

    keeping.keep(tensor)

    rows = keeping.rows()
    assert [(row["chunk"], row["chunks"], len(row["data"])) for row in rows] == [
        *((0, 3, CHUNK_BYTES), (1, 3, CHUNK_BYTES)),
        (2, 3, 17),
    ]
    assert b"".join(row["data"] for row in rows) == raw(tensor)


def test_the_same_content_is_sent_once_whatever_its_name() -> None:
    keeping = Keeping()
    other = Subject("tail.weight", "tail", None, "", Role.WEIGHT.code)

    keeping.keep(torch.ones(3), step=1)
    keeping.keep(torch.ones(3), step=2, subject=other)
    keeping.keep(torch.zeros(3), step=2)

    rows = keeping.rows()
    assert [(row["name"], row["chunks"], len(row["data"])) for row in rows] == [
        ("head.weight", 1, 12),
        ("tail.weight", 0, 0),
        ("head.weight", 1, 12),
    ]
    assert rows[0]["digest_hi"] == rows[1]["digest_hi"] != rows[2]["digest_hi"]


@pytest.mark.parametrize(
    ("values", "steps"),
    [(Values(step_bytes=40), (0, 0)), (Values(run_bytes=40), (0, 1))],
    ids=["of the step", "of the run"],
)
def test_what_does_not_fit_is_a_gap_that_names_the_tensor_and_its_bytes(values: Values, steps: tuple[int, int]) -> None:
    keeping = Keeping(values)
    kept = [keeping.keep(torch.full((8,), float(step)), step=step)[0] for step in steps]

    assert kept[0] is not None
    assert kept[1] is None
    (gap,) = (row for row in keeping.rows("gaps") if row["cause"] == GapCause.BUDGET.value)
    assert gap["data_kind"] == "captures"
    assert gap["detail"] == "values of head.weight (weight), 32 bytes, do not fit"
    assert (gap["step_from"], gap["step_to"]) == (steps[1], steps[1])


def test_what_the_sealing_thread_has_not_taken_is_bounded_too() -> None:
    held = Held()
    keeper = Keeper(cast("Any", held), keys_of, values=Values(step_bytes=8))
    kept: list[bool] = []
    for step in range(3):
        keeper.begin(opened(step))
        kept.append(keeper.keep(WEIGHT, torch.ones(2), phase=FORWARD, microstep=0, cause="c") is not None)
        keeper.end()
    held.items.clear()
    kept.append(keeper.keep(WEIGHT, torch.ones(2), phase=FORWARD, microstep=0, cause="c") is not None)

    assert kept == [True, True, False, True]


def test_a_step_has_room_again_after_the_one_before_and_gaps_are_bounded() -> None:
    keeping = Keeping(Values(step_bytes=40))
    many = [torch.full((8,), float(at)) for at in range(MOST_NAMED + 4)]

    kept = [*keeping.keep(*many, step=0), *keeping.keep(many[0], step=1)]

    assert [one is not None for one in kept] == [True, *[False] * (MOST_NAMED + 3), True]
    gaps = keeping.rows("gaps")
    assert len(gaps) == MOST_NAMED + 1
    assert gaps[-1]["detail"] == "values of 3 more tensors, 96 bytes, do not fit"


@pytest.mark.parametrize(
    ("tensor", "values", "said"),
    [
        (torch.ones(2).to_sparse(), Values(), "dense"),
        (torch.ones(2, device="meta"), Values(), "no values"),
        (torch.ones(2), Values(part=Part.SLICE, slices=((0, 1), (0, 1))), "2 dimensions, and it has 1"),
    ],
)
def test_what_cannot_be_kept_is_said_once(tensor: Tensor, values: Values, said: str) -> None:
    keeping = Keeping(values)

    assert [*keeping.keep(tensor), *keeping.keep(tensor, step=1)] == [None, None]

    (gap,) = keeping.rows("gaps")
    assert gap["cause"] == GapCause.UNSUPPORTED.value
    assert said in gap["detail"]


def test_an_ask_is_answered_at_the_end_of_the_step_it_is_for() -> None:
    keeping = Keeping()
    keeper, tensor = keeping.keeper, torch.ones(2)
    pending = keeper.ask(["head.weight"], cause="capture", roles=[Role.WEIGHT], step=1)

    for step in range(3):
        keeper.begin(opened(step))
        assert (WEIGHT.key in keeper.asked, keeper.is_asked) == (step == 1, step == 1)
        keeper.see(WEIGHT, tensor * step, phase=FORWARD, microstep=0)
        assert pending.is_done == (step == 2)
        keeper.end()

    (kept,) = pending.result(0)
    assert (kept.name, kept.role, kept.step, numbers(kept.values())) == ("head.weight", Role.WEIGHT, 1, [1.0, 1.0])
    assert [row["cause"] for row in keeping.rows()] == ["capture"]


def test_two_asks_for_one_tensor_are_one_copy_and_a_row_each() -> None:
    keeping = Keeping(Values(step_bytes=8))
    pending = [keeping.keeper.ask(["head.weight"], cause=cause) for cause in ("a", "b")]

    keeping.keeper.begin(opened(0))
    keeping.keeper.see(WEIGHT, torch.ones(2), phase=FORWARD, microstep=0)
    keeping.keeper.end()

    assert [len(one.result(0)) for one in pending] == [1, 1]
    assert [(row["cause"], row["chunks"]) for row in keeping.rows()] == [("a", 1), ("b", 0)]


def test_an_ask_that_nothing_came_of_says_why() -> None:
    keeping = Keeping(Values(step_bytes=4))
    keeper = keeping.keeper
    keeper.begin(opened(5))
    asked = {
        "is over": keeper.ask(["head.weight"], cause="c", step=5),
        "was seen in step 6": keeper.ask(["tail"], cause="c"),
        "8 bytes do not fit": keeper.ask(["head.weight"], cause="c"),
        "come off": keeper.ask(["head.weight"], cause="c", step=9),
    }

    keeper.begin(opened(6))
    keeper.see(WEIGHT, torch.ones(2), phase=FORWARD, microstep=0)
    keeper.end()
    keeper.begin(opened(7))
    keeper.close()

    for said, pending in asked.items():
        with pytest.raises(NotCaptured, match=said):
            pending.result(0)
    assert "come off" in keeper.ask(["head.weight"], cause="c").reason


def test_an_ask_outlasts_the_microsteps_of_its_step() -> None:
    keeper = Keeping().keeper
    pending = keeper.ask(["head.weight"], cause="c")

    keeper.begin(opened(0))
    keeper.end()
    keeper.begin(opened(0, 1))
    keeper.see(WEIGHT, torch.ones(1), phase=FORWARD, microstep=1)
    keeper.end()

    assert [kept.microstep for kept in pending.result(0)] == [1]


def test_values_of_a_device_are_awaited_by_nobody_but_who_asks_for_them() -> None:
    device = HostAsDevice()
    keeping = Keeping(device=device)
    device.is_behind = True
    pending = keeping.keeper.ask(["head.weight"], cause="c")

    keeping.keeper.begin(opened(0))
    keeping.keeper.see(WEIGHT, torch.ones(2), phase=FORWARD, microstep=0)
    keeping.keeper.end()
    keeping.keeper.begin(opened(1))
    assert (pending.is_done, device.waits) == (False, 0)
    device.is_behind = False
    keeping.keeper.end()

    assert numbers(pending.result(0)[0].values()) == [1.0, 1.0]
    assert len(keeping.rows()) == 1
    assert device.waits == 0


def test_while_a_graph_is_captured_no_copy_is_asked_for() -> None:
    device = HostAsDevice()
    keeping = Keeping(device=device)
    device.is_behind = True
    pending = keeping.keeper.ask(["head.weight"], cause="c")
    keeping.keeper.begin(opened(0))
    keeping.keeper.see(WEIGHT, torch.ones(2), phase=FORWARD, microstep=0)
    keeping.keeper.end()

    device.is_in_graph, device.is_behind = True, False
    keeping.keeper.begin(opened(1))
    keeping.keeper.end()
    assert not pending.is_done

    device.is_in_graph = False
    keeping.keeper.begin(opened(2))
    assert numbers(pending.result(0)[0].values()) == [1.0, 1.0]
