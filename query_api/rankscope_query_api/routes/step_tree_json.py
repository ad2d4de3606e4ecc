"""The tree of a step across its ranks as JSON."""

from collections.abc import Sequence

from rankscope_proto.names import Phase, SpanKind
from rankscope_query_api.answers import Json, moment
from rankscope_query_api.ranks.missing import MissingRank
from rankscope_query_api.ranks.step_groups import Groups
from rankscope_query_api.ranks.step_places import Spread
from rankscope_query_api.ranks.step_tree import MergedNode, MergedTree, RankStep
from rankscope_query_api.step_rows import StepCharges


def tree_json(tree: MergedTree) -> dict[str, Json]:
    """What is said of the whole tree, beside its nodes."""
    ranks: Sequence[Json] = [_rank_json(rank) for rank in tree.ranks]
    return {
        "missing_ranks": _missing_json(tree.missing_ranks),
        "ranks": ranks,
        "depth": tree.depth,
        "orphans": sum(node.orphans for node in tree.nodes),
        "copies": tree.copies,
        "late": sum(node.late for node in tree.nodes),
        "waits": _waits_json(tree.charges),
    }


def _waits_json(charges: StepCharges | None) -> dict[str, Json] | None:
    if charges is None:
        return None
    return {
        "charged_ns": sum(charges.by_rank.values()),
        "received_ns": charges.received_ns,
        "uncertain_ns": charges.uncertain_ns,
    }


def node_json(node: MergedNode, groups: Groups | None) -> dict[str, Json]:
    """One place of it.

    Args:
        node: The place.
        groups: What its ranks are grouped to; None: that is not asked for.
    """
    shown: dict[str, Json] = {
        "path": node.path,
        "name": node.name,
        "depth": node.depth,
        "kind": SpanKind.of(node.kind),
        "phase": Phase.of(node.phase),
        "microbatch": node.microbatch,
        "count": node.count,
        "errors": node.errors,
        "late": node.late,
        **_spread_json(node.spread),
        "missing_ranks": _missing_json(node.missing_ranks),
        **moment("first_start", node.first_start_ns),
        **moment("last_start", node.last_start_ns),
        "order_known": node.order_known,
    }
    return shown if groups is None else {**shown, **_groups_json(groups)}


def _groups_json(groups: Groups) -> dict[str, Json]:
    shown: Sequence[Json] = [{"group": group.name, **_spread_json(group.spread)} for group in groups.shown]
    return {"groups": shown, "groups_total": groups.total}


def _spread_json(spread: Spread) -> dict[str, Json]:
    return {
        "ranks": spread.ranks,
        "min_ns": spread.min_ns,
        "median_ns": spread.median_ns,
        "max_ns": spread.max_ns,
        "slowest_rank": spread.slowest_rank,
        "charged_wait_ns": spread.charged_wait_ns,
    }


def _missing_json(missing: Sequence[MissingRank]) -> Sequence[Json]:
    return [{"rank": one.rank, "reason": one.reason, "detail": one.detail} for one in missing]


def _rank_json(rank: RankStep) -> dict[str, Json]:
    return {
        "rank": rank.rank,
        "node": rank.node,
        **moment("start", rank.start_ns),
        "duration_ns": rank.duration_ns,
        "input_ns": rank.input_ns,
        "forward_ns": rank.forward_ns,
        "backward_ns": rank.backward_ns,
        "optimizer_ns": rank.optimizer_ns,
        "wait_ns": rank.wait_ns,
        "charged_ns": rank.charged_ns,
    }
