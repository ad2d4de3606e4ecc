"""Looks where the first non-finite value of a launch came from: reads each process's first, and what lies between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_proto.names import Phase, Role
from rankscope_query_api.answers import Json
from rankscope_query_api.nonfinite import FirstNonfinite, Looked
from rankscope_query_api.ranks.provenance import Provenance, Received, origins
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

NAME, VERSION = "nonfinite", 1

_BASES = {
    "collectives": "matched collectives order the ranks",
    "reduction": "a gradient after its reduction is every rank's; the reduction itself was not recorded",
    "step": "no collective was recorded: only the steps order the ranks",
    "alone": "one process has non-finite values",
}


@dataclass(frozen=True, slots=True)
class Traced:
    """Where the first non-finite value came from.

    Attributes:
        provenance: That.
        looked: What was looked at before the origin; None: there is no origin.
        lost: Rows of tensors that the run lost, whatever the step.
    """

    provenance: Provenance
    looked: Looked | None
    lost: int


async def traced(store: TraceStore, key: RunKey, *, launch: str, first_step: int = -1) -> Traced:
    """Traces the first non-finite values of a launch, of those from a step on."""
    firsts = await store.nonfinite.firsts(key, launch, first=first_step)
    passages = await store.nonfinite.passages(key, launch, of=firsts)
    provenance = origins(firsts, passages)
    if provenance.origin is None:
        return Traced(provenance, None, 0)
    looked = await store.nonfinite.looked(key, launch, at=provenance.origin)
    gaps = await store.runs.gaps(key, sections=("tensor_stats",), step=provenance.origin.step)
    lost = sum(int(gap["rows"] or 0) for gap in gaps if gap["class"] == "lost")
    return Traced(provenance, looked, lost)


def findings_of(found: Traced, launch: str) -> Sequence[Finding]:
    """The origin as a finding; where it is undecided, the ranks of which one is."""
    origin, undecided = found.provenance.origin, found.provenance.undecided
    first = origin or min(undecided, key=lambda one: (-1 if one.step is None else one.step, one.rank), default=None)
    if first is None:
        return []
    ranks = ", ".join(str(one.rank) for one in undecided)
    which = f"; ranks {ranks} have each an own first one, and which was first is undecided" if origin is None else ""
    received = len(found.provenance.received)
    return [
        Finding(
            rule=NAME,
            version=VERSION,
            severity="error",
            launch=launch,
            step=first.step,
            rank=first.rank if origin else None,
            subject=f"{Role.of(first.role)} {first.name} step {first.step} rank {first.rank if origin else ranks}",
            sentence=(
                f"{Role.of(first.role)} {first.name} is the first with non-finite values ({first.nonfinite}), "
                f"on rank {first.rank} in {Phase.of(first.phase) or 'no phase'} of step {first.step}"
                + (f"; {received} ranks received theirs from others" if received else "")
                + which
            ),
            evidence=provenance_json(found),
            first_ns=first.time_ns,
            last_ns=first.time_ns,
        )
    ]


def provenance_json(found: Traced) -> dict[str, Json]:
    """All that for an answer."""
    provenance = found.provenance
    return {
        "origin": provenance.origin and first_json(provenance.origin),
        "received": [_received_json(one) for one in provenance.received],
        "undecided": [first_json(one) for one in provenance.undecided],
        "basis": provenance.basis,
        "evidence": _evidence(found),
    }


def first_json(first: FirstNonfinite) -> dict[str, Json]:
    """A process's first non-finite tensor."""
    return {
        "rank": first.rank,
        "incarnation": first.incarnation,
        "step": first.step,
        "microstep": first.microstep,
        "phase": Phase.of(first.phase),
        "role": Role.of(first.role),
        "name": first.name,
        "module": first.module,
        "layer_index": first.layer_index,
        "nonfinite_count": first.nonfinite,
        "is_reduced": first.is_reduced,
    }


def _received_json(received: Received) -> dict[str, Json]:
    via = received.via
    return {
        **first_json(received.first),
        "from_rank": received.of,
        "via": None if via is None else {"group": via.group, "seq": via.cseq, "op": via.op, "step": via.step},
    }


def _evidence(found: Traced) -> Mapping[str, Json]:
    """What is known of the origin's inputs; what was not looked at is said."""
    evidence: dict[str, Json] = {"order": _BASES[found.provenance.basis]}
    if found.looked is None:
        return evidence
    looked = found.looked
    evidence["outputs_before"] = f"{looked.activations} outputs of modules before it in its step, all finite"
    if not looked.activations:
        evidence["outputs_before"] = "no output before it in its step was looked at (known from level 1 on)"
    evidence["weights"] = "its module's weights were not looked at before"
    if looked.weights_step is not None:
        evidence["weights"] = f"its module's weights were finite at step {looked.weights_step}"
    evidence["batch"] = "the batch itself is not looked at"
    if found.lost:
        evidence["lost"] = f"{found.lost} rows of tensors were lost at this step: an earlier one may be among them"
    return evidence
