"""What the store says about a run: asked after it ended, by query alone, with no knowledge of the faults."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope.demo._options import RANKS, Say
from rankscope.up import Client, Json, RefusedError, UpError, quoted

PROJECT = "default"
PATIENCE_S = 120.0
"""How long nothing may arrive before the demo gives up; on a machine that is busy otherwise, rows come slowly."""

INTERVAL_S = 0.2

TENSORS_TOLD = 3

FIRST_NONFINITE = "tensor.nonfinite_count > 0 | first"

Found = dict[str, dict[str, Any] | None]
"""`straggler` {rank, since_step, phase} and `nonfinite` {rank, step, layer}, each null when there is none."""


class IncompleteError(UpError):
    """Rows that were emitted are not in the store."""

    code = "incomplete"


@dataclass(frozen=True, slots=True)
class Findings:
    """The answer of `GET /runs/{run}/findings`."""

    answer: Json

    @property
    def found(self) -> Found:
        """The finding in the form that `demo --json` writes."""
        return {
            "straggler": _only(self.answer.get("straggler"), "rank", "since_step", "phase"),
            "nonfinite": _only(self.answer.get("nonfinite"), "rank", "step", "layer"),
        }

    def tell(self, say: Say) -> None:
        """The findings as sentences."""
        straggler, nonfinite = self.answer.get("straggler"), self.answer.get("nonfinite")
        if straggler:
            say(straggler_sentence(straggler))
        if nonfinite:
            for line in nonfinite_sentences(nonfinite):
                say(line)
        if not straggler and not nonfinite:
            say("nothing found: no rank held the others up, and every value was finite")


def wait_until_visible(client: Client, run: str, *, patience_s: float = PATIENCE_S) -> Json:
    """Return the run's completeness once every emitted row is in the store.

    Args:
        client: the query service.
        run: a run whose training has ended.
        patience_s: how long to wait while nothing arrives.

    Raises:
        IncompleteError: nothing has arrived for that long, and rows are still missing; the message says which.
    """
    before: Json | None = None
    deadline = time.monotonic() + patience_s
    while True:
        answer = _completeness(client, run)
        if answer and _is_whole(answer):
            return answer
        if answer != before:
            before, deadline = answer, time.monotonic() + patience_s
        if time.monotonic() > deadline:
            raise IncompleteError(
                f"the training has ended, and for {patience_s:g} s nothing more of run {run!r} arrived in the store: "
                f"{missing_words(answer)}",
                hint="the server's log is up.log in the data folder; `rankscope up`, then `rankscope doctor "
                f"{run}`, tells whether it arrived later",
            )
        time.sleep(INTERVAL_S)


def missing_words(completeness: Json | None) -> str:
    """What is missing of a demo's run: ranks of which nothing came, ranks without an end, faults, rows."""
    if completeness is None:
        return "no row of it is there"
    processes: Sequence[Mapping[str, Any]] = completeness["processes"]
    silent = sorted(set(range(RANKS)) - {process["rank"] for process in processes})
    cut = sorted(process["rank"] for process in processes if not process["ended"])
    words = [
        *(f"nothing came of rank {rank}" for rank in silent),
        *(f"the last rows of rank {rank} are missing" for rank in cut),
        *(f"rank {process['rank']}: {fault}" for process in processes for fault in process["faults"]),
    ]
    return "; ".join(words)


def findings_of(client: Client, run: str) -> Findings:
    """What the service finds in the run."""
    return Findings(client.get(f"/runs/{quoted(run)}/findings", project=PROJECT))


def first_nonfinite(client: Client, run: str) -> Mapping[str, Any] | None:
    """The first row with a non-finite value, by TQL."""
    rows = client.post("/tql", {"query": FIRST_NONFINITE, "run": run}, project=PROJECT)["items"]
    return rows[0] if rows else None


def straggler_sentence(straggler: Mapping[str, Any]) -> str:
    """Which rank made the others wait, since when, in what, by how much."""
    lost_ms = int(straggler["lost_ns_per_step"]) / 1e6
    return (
        f"rank {straggler['rank']} made the others wait since step {straggler['since_step']}, "
        f"in its {straggler['phase']} phase: {lost_ms:.0f} ms of each step"
        f"{_share_words(straggler.get('share'))}"
    )


def nonfinite_sentences(nonfinite: Mapping[str, Any]) -> list[str]:
    """Where the first non-finite value appeared, then in which tensors."""
    place = f"rank {nonfinite['rank']}, step {nonfinite['step']}, layer {nonfinite['layer']}"
    tensors: Sequence[Mapping[str, Any]] = nonfinite["tensors"]
    later = [f"{tensor['role']} {tensor['name']}" for tensor in tensors[1 : 1 + TENSORS_TOLD]]
    rest = int(nonfinite["tensors_total"]) - 1 - len(later)
    sentences = [f"the first non-finite value appeared on {place}, in its {nonfinite['role']}"]
    if later:
        sentences.append(f"  then in {', '.join(later)}" + (f" and {rest} more tensors of that step" if rest else ""))
    return sentences


def _completeness(client: Client, run: str) -> Json | None:
    try:
        return client.get(f"/runs/{quoted(run)}/completeness", project=PROJECT)
    except RefusedError as refused:
        if refused.status == 404:
            return None  # its first batch is not written yet
        raise


def _is_whole(completeness: Json) -> bool:
    # Before a rank's last batch arrives, what is there may well be complete as far as it goes.
    heard = {process["rank"] for process in completeness["processes"]} >= set(range(RANKS))
    return bool(heard and completeness["ended"] and completeness["complete"])


def _only(answer: Mapping[str, Any] | None, *names: str) -> dict[str, Any] | None:
    return {name: answer[name] for name in names} if answer else None


def _share_words(share: object) -> str:
    return f", {float(str(share)):.0%} of it" if share is not None else ""
