"""The oracles: what must hold after any fault, each judged from outside.

O1 what the spool took is stored, whole, or declared lost, and nothing is declared lost that the fault cannot have
cost; O2 what is stored is what a source sealed, once; O3 a
fresh row is visible soon after the fault has healed; O4 emitted = stored + lost, of every process; O5 recording was
never held up; O6 no process grew beyond its bound. An oracle that cannot look says `unverified`, which is no pass.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from clickhouse_connect.driver.client import Client

from rankscope_proto.names import GapCause
from tests.ground.processes import wait_until
from tests.system.tables import LASTING, Gap, Tables
from tests.system.truth import Key, Truth

MIB = 2**20
HEAL_S = 10.0
PATIENCE_S = 60.0
"""On a machine that is busy with something else; what a quiet one takes is measured apart."""
HELD_UP_TIMES = 200
"""A turn's calls take 50 µs, as does the plain work beside them; what waits for a disk, a lock or a network takes much
more in a turn of a hundred."""
FINDINGS_TOLD = 12
NOT_TAKEN = {GapCause.RING_FULL.value, GapCause.SPOOL_FULL.value}
"""Causes of a row that no spool took."""


class State(StrEnum):
    """How a check ended."""

    HELD = "held"
    FAILED = "failed"
    UNVERIFIED = "unverified"


@dataclass(slots=True)
class Verdict:
    """What one oracle found.

    Attributes:
        oracle: O1 to O6.
        findings: A sentence for each fault; none: it held.
        lost: Rows that must be there, are not, and are not declared.
        duplicated: Rows that are there more than once, or that nobody sealed.
        error: Why it could not look.
    """

    oracle: str
    findings: list[str] = field(default_factory=list[str])
    lost: int = 0
    duplicated: int = 0
    error: str = ""

    @property
    def state(self) -> State:
        """Held, failed, or not verified."""
        if self.error:
            return State.UNVERIFIED
        return State.FAILED if self.findings else State.HELD


@dataclass(slots=True)
class Report:
    """The verdicts of a run of the suite, over so many rows that must be there.

    Attributes:
        declared: Rows that the run's gaps declare lost, by cause; a cause that was told without rows has 0.
    """

    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    rows: int = 0
    declared: Counter[str] = field(default_factory=Counter[str])

    @property
    def lost(self) -> int:
        """Rows lost."""
        return sum(verdict.lost for verdict in self.verdicts)

    @property
    def duplicated(self) -> int:
        """Rows stored twice, or never sealed."""
        return sum(verdict.duplicated for verdict in self.verdicts)

    @property
    def outcome(self) -> str:
        """The three numbers that matter, in words."""
        causes = ", ".join(f"{cause} {rows}" for cause, rows in sorted(self.declared.items()) if rows)
        told = f"lost {self.lost}, duplicated {self.duplicated}, declared lost {self.declared.total()}"
        return f"{told} ({causes})" if causes else told

    @property
    def is_clean(self) -> bool:
        """Whether every oracle looked, and none found anything."""
        return all(verdict.state is State.HELD for verdict in self.verdicts)

    @property
    def failed(self) -> list[str]:
        """The oracles that found a fault."""
        return [verdict.oracle for verdict in self.verdicts if verdict.state is State.FAILED]

    def __str__(self) -> str:
        lines: list[str] = []
        for verdict in self.verdicts:
            lines.append(f"{verdict.oracle} {verdict.state}{': ' + verdict.error if verdict.error else ''}")
            lines += [f"   {finding}" for finding in verdict.findings[:FINDINGS_TOLD]]
            if len(verdict.findings) > FINDINGS_TOLD:
                lines.append(f"   and {len(verdict.findings) - FINDINGS_TOLD} more")
        return "\n".join([*lines, self.outcome])


def checked(oracle: str, look: Callable[[Verdict], None]) -> Verdict:
    """Lets an oracle look; whatever goes wrong with the looking itself is no verdict on the system."""
    verdict = Verdict(oracle)
    try:
        look(verdict)
    except Exception as error:  # noqa: BLE001 - a checker's own fault must never read as a pass, nor as a loss
        verdict.error = f"{type(error).__name__}: {error}"
    return verdict


def judge(truth: Truth, tables: Tables, *, may_declare: Collection[str] = ()) -> Report:
    """O1, O2 and O4 of one run.

    Args:
        truth: What its sources wrote down.
        tables: What is stored of it.
        may_declare: Causes of gaps by which the fault of this test really costs rows.
    """
    gaps = set(tables.gaps)  # one said again counts once
    declared = Counter[str](dict.fromkeys((gap.cause for gap in gaps), 0))
    for gap in gaps:
        declared[gap.cause] += gap.rows
    return Report(
        [
            checked("O1", lambda verdict: nothing_is_lost(truth, tables, verdict=verdict)),
            checked(
                "O1 (declared)",
                lambda verdict: nothing_is_given_up(truth, tables, may_declare=may_declare, verdict=verdict),
            ),
            checked("O2", lambda verdict: nothing_is_twice(truth, tables, verdict=verdict)),
            checked("O4", lambda verdict: sums_agree(tables, verdict=verdict)),
        ],
        truth.rows,
        declared,
    )


def nothing_is_lost(truth: Truth, tables: Tables, *, verdict: Verdict) -> None:
    """O1: every batch the spool took is stored in every table, or a lost gap names it."""
    if not truth.must:
        raise ValueError("the sources wrote nothing down: there is nothing to compare with")
    for key in sorted(truth.must):
        written = truth.may[key]
        if key not in tables.batches:
            if not any(gap.covers(key) for gap in tables.gaps):
                verdict.lost += written.rows
                verdict.findings.append(f"batch {_named(key)} with {written.rows} rows is nowhere")
            continue
        for section in LASTING:
            stored = tables.sections[section.name].get(key)
            absent = written.counts.get(section.name, 0) - (stored.distinct if stored else 0)
            if absent > 0:
                verdict.lost += absent
                verdict.findings.append(f"batch {_named(key)} lacks {absent} rows of {section.name}")


def nothing_is_given_up(truth: Truth, tables: Tables, *, may_declare: Collection[str], verdict: Verdict) -> None:
    """O1, the other half: no gap declares lost what the fault cannot have cost, stored since or not.

    Kills, cuts, a full broker or a store that fails cost nothing that a spool took: a gap about it would only hide
    that rows were thrown away. Only an unknown end may be told, of which no row is known.
    """
    if not tables.batches:
        raise ValueError("the tables hold nothing of this run: there are no gaps to look at")
    for gap in sorted(set(tables.gaps), key=str):
        if gap.cause == GapCause.TAIL_UNKNOWN:
            is_false = bool(gap.rows) or gap.seq_from is not None
        elif gap.cause in may_declare:
            is_false = gap.cause in NOT_TAKEN and any(gap.covers(key) for key in truth.must)
        else:
            is_false = True
        if is_false:
            seqs = "" if gap.seq_from is None else f" of the batches {gap.seq_from} to {gap.seq_to}"
            verdict.findings.append(
                f"{gap.incarnation[-8:]}: {gap.rows} rows of {gap.section or 'any section'}{seqs} "
                f"are declared lost as {gap.cause}"
            )


def nothing_is_twice(truth: Truth, tables: Tables, *, verdict: Verdict) -> None:
    """O2: each row is there once, and is one that a source sealed, with what it sealed in it."""
    if not tables.batches:
        raise ValueError("the tables hold nothing of this run: there is nothing to compare")
    for key, batch in tables.batches.items():
        if batch.copies > 1:
            verdict.duplicated += batch.copies - 1
            verdict.findings.append(f"batch {_named(key)} is {batch.copies} times in the ledger table")
        if batch.is_trainers and key not in truth.may:
            verdict.duplicated += 1
            verdict.findings.append(f"batch {_named(key)} was never sealed by a source")
    for section in LASTING:
        for key, stored in tables.sections[section.name].items():
            sealed = truth.may[key].counts.get(section.name, 0) if key in truth.may else stored.distinct
            if (more := max(stored.rows - sealed, stored.rows - stored.distinct)) > 0:
                verdict.duplicated += more
                verdict.findings.append(f"batch {_named(key)} has {more} rows of {section.name} too many")
    _compare_sums(truth, tables, verdict=verdict)


def _compare_sums(truth: Truth, tables: Tables, *, verdict: Verdict) -> None:
    for key in truth.may.keys() & tables.batches.keys():
        written = truth.may[key]
        for section, sealed in (("scalars", written.scalar_sum), ("spans", written.span_sum)):
            found = tables.sums[section].get(key, 0)
            if found != sealed:
                verdict.findings.append(f"batch {_named(key)}: {section} sum to {found}, sealed were {sealed}")


def sums_agree(tables: Tables, *, verdict: Verdict) -> None:
    """O4: of every process and section, emitted = stored + lost, and no batch number is unaccounted for."""
    last: dict[str, int] = {}
    for incarnation, seq in tables.batches:
        last[incarnation] = max(last.get(incarnation, -1), seq)
    if not last:
        raise ValueError("the tables hold nothing of this run: there are no sums")
    declared = [gap for gap in tables.gaps if gap.seq_from is not None]
    for incarnation, highest in last.items():
        for seq in range(highest):
            key = (incarnation, seq)
            if key not in tables.batches and not any(gap.covers(key) for gap in declared):
                verdict.findings.append(f"batch {_named(key)} is missing and no gap names it")
        _balance(incarnation, highest, tables=tables, verdict=verdict)


def _balance(incarnation: str, highest: int, *, tables: Tables, verdict: Verdict) -> None:
    emitted = Counter[str](tables.batches[incarnation, highest].emitted)
    lost = Counter[str]()
    for gap in {gap for gap in tables.gaps if gap.incarnation == incarnation}:  # one said again counts once
        rows = max(gap.rows - _found_again(gap, tables), 0)
        lost[gap.section] += rows
        if gap.seq_from is not None and gap.seq_from > highest:
            emitted[gap.section] += rows  # no stored header counts them: nothing behind them has arrived
    for section in LASTING:
        of_section = tables.sections[section.name].items()
        stored = sum(rows.rows for (inc, _), rows in of_section if inc == incarnation)
        if emitted[section.name] != stored + lost[section.name]:
            verdict.findings.append(
                f"{incarnation}: {section.name}: {emitted[section.name]} emitted, {stored} stored, "
                f"{lost[section.name]} declared lost"
            )


def _found_again(gap: Gap, tables: Tables) -> int:
    """Rows of the batches that a gap names and that are stored after all."""
    if gap.seq_from is None or gap.seq_to is None:
        return 0
    rows = tables.sections.get(gap.section, {})
    return sum(stored.rows for key, stored in rows.items() if gap.covers(key))


def fresh_row_visible(client: Client, run: str, *, bound_s: float) -> Verdict:
    """O3: a row recorded after this call is visible within the bound; the seconds it took are its one detail."""
    started, now = time.monotonic(), time.time_ns()
    newest = "SELECT countIf(time > {now:Int64}) FROM scalars WHERE run_id = {run:String}"

    def is_there() -> bool:
        found = client.query(newest, parameters={"now": now, "run": run}).result_rows[0][0]
        return bool(found)

    def look(verdict: Verdict) -> None:
        try:
            wait_until(is_there, timeout_s=bound_s, what="a fresh row")
        except TimeoutError:
            verdict.findings.append(f"no row recorded after the fault had healed was visible within {bound_s:g} s")

    verdict = checked("O3", look)
    verdict.oracle = f"O3 ({time.monotonic() - started:.1f} s)"
    return verdict


def never_held_up(folder: Path, *, p99_us: float = math.inf) -> Verdict:
    """O5: the recording calls of every source stayed below the bound, and near work that waits for nothing."""

    def look(verdict: Verdict) -> None:
        costs = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.cost")}
        if not costs:
            raise ValueError("no source wrote its costs down")
        verdict.findings += [
            f"{name}: p99 of a turn's calls is {cost['p99_us']:.0f} µs, bound {bound:.0f}"
            for name, cost in costs.items()
            if cost["p99_us"] > (bound := min(p99_us, HELD_UP_TIMES * cost["plain_p99_us"]))
        ]

    return checked("O5", look)


def within_memory(peaks: Mapping[str, int], bounds: Mapping[str, int]) -> Verdict:
    """O6: the highest resident size of each kind of process, in bytes, against its bound."""

    def look(verdict: Verdict) -> None:
        if missing := bounds.keys() - peaks.keys():
            raise ValueError(f"never measured: {', '.join(sorted(missing))}")
        verdict.findings += [
            f"{name}: {peaks[name] // MIB} MiB, bound {bound // MIB}"
            for name, bound in bounds.items()
            if peaks[name] > bound
        ]

    return checked("O6", look)


def peak_memory(pid: int) -> int:
    """The most resident memory a process had, bytes; 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _named(key: Key) -> str:
    return f"{key[0][-8:]}:{key[1]}"
