"""What a row still lacks when its numbers have become known: its loss scale taken out, and ratios to other rows.

Rows leave in the order in which they came; those whose loss scale is still on its way are kept until the
next time.
"""

from collections.abc import Sequence

from rankscope.probe.rows import Numbers, Row
from rankscope.probe.scaling import GRADIENTS, SKIPPED, Scaling, unscale
from rankscope_proto.names import Role

_WEIGHT, _UPDATE = Role.WEIGHT.code, Role.UPDATE.code


class Finishing:
    """Finishes the rows of one watch.

    Attributes:
        scaling: The loss scaler, if training is known to have one.
        has_ratios: Whether gradients and updates are compared with their weights.
        are_updates_whole: Whether a row of an update has the table of the whole difference; else it has the ratio.
    """

    def __init__(self) -> None:
        self.scaling: Scaling | None = None
        self.has_ratios = self.are_updates_whole = False
        self._held: list[Row] = []

    def finished(self, rows: list[Row], *, wait: bool) -> list[Row]:
        """The rows that can leave, of these and of those kept before.

        Args:
            rows: Rows whose numbers are known.
            wait: Wait for what is still on its way (never in a step).
        """
        if self.scaling is not None:
            self.scaling.settle(wait=wait)
            rows = self._judged(rows)
        if self.has_ratios and rows:
            compare(rows, are_updates_whole=self.are_updates_whole)
        return rows

    def _judged(self, rows: list[Row]) -> list[Row]:
        """Those whose loss scale is known or never will be, divided by it and marked where no update followed."""
        rows, self._held = self._held + rows, []
        ready: list[Row] = []
        for row in rows:
            scale = row.loss_scale
            if scale is None:
                ready.append(row)
            elif not scale.is_judged:
                self._held.append(row)
            elif row.subject.role in GRADIENTS:
                unscale(row)
                row.flags |= SKIPPED if scale.is_skipped else 0
                ready.append(row)
            elif not scale.is_skipped:
                ready.append(row)
        return ready


def compare(rows: Sequence[Row], *, are_updates_whole: bool) -> None:
    """Write each gradient's and each whole update's norm as a share of its weight's norm of the same step.

    Args:
        rows: Of one step, or of several.
        are_updates_whole: Else what was measured of an update is its ratio already.
    """
    weights = {(row.step, row.subject.name): row.numbers.l2 for row in rows if row.subject.role == _WEIGHT}
    for row in rows:
        role, own = row.subject.role, row.numbers.l2
        if role == _UPDATE and not are_updates_whole:
            row.numbers = Numbers(update_ratio=own)
            continue
        weight = weights.get((row.step, row.subject.name))
        if not weight or own is None:
            continue
        if role == _UPDATE:
            row.numbers = row.numbers._replace(update_ratio=own / weight)
        elif role in GRADIENTS:
            row.numbers = row.numbers._replace(grad_to_weight=own / weight)
