"""Whether a span is kept, and whose child it is where something around it is not.

A span that is left out works as any other, but has a start from the beginning, so that nothing starts it,
registers it as open or records it. Promises: each is counted once, with its cause; what belongs to a
step's own is never left out.
"""

from typing import TYPE_CHECKING

from rankscope._span_ref import KEPT, NOTHING, SPAN_LEFT_OUT, TRACE_LEFT_OUT, RemoteParent, SpanRef, Tree
from rankscope_proto.names import GapCause

if TYPE_CHECKING:
    from rankscope._span import Span

NEVER = -1
"""The start of a span that is left out."""


def sample(span: "Span") -> None:
    """Leave the span out, or its trace where it begins one here, if sampling says so."""
    if span.is_essential or span.is_left_out:
        return
    sampling = span.recording.sampling
    begins_here = span.parent is None or isinstance(span.parent, RemoteParent)
    if begins_here and not sampling.keeps_trace(span.trace):
        leave_out(span, GapCause.SAMPLED, how=TRACE_LEFT_OUT)
    elif not sampling.keeps_span(span.kind, span.id):
        leave_out(span, GapCause.SAMPLED, how=SPAN_LEFT_OUT)


def leave_out(span: "Span", cause: GapCause, *, how: int = KEPT) -> None:
    """Do not record the span, nor, by `how`, make it anybody's parent, or record its trace at all."""
    if span.is_essential or span.is_left_out:
        return
    span.start_mono_ns = NEVER
    span.recording.left_out.note(cause)
    if how != KEPT:
        scope = span.own_scope()
        scope.left_out, scope.tree = how, None


def join(span: "Span", parent: SpanRef) -> Tree:
    """Make the span a child of the nearest ancestor that is kept; the tree that counts it.

    For a parent whose spans were not counted yet, or of which sampling left something out.
    """
    if parent.scope.left_out == TRACE_LEFT_OUT:
        leave_out(span, GapCause.SAMPLED)
        return Tree()
    ancestor: SpanRef | None = parent
    while ancestor is not None and ancestor.scope.left_out == SPAN_LEFT_OUT:
        ancestor = ancestor.parent
    span.parent = ancestor
    span.depth = 0 if ancestor is None else ancestor.depth + 1
    tree = Tree() if ancestor is None else _tree_of(ancestor)
    if ancestor is parent:
        span.scope = parent.scope
    else:
        scope = span.own_scope()
        scope.left_out, scope.tree = KEPT, tree
    return tree


def part(span: "Span") -> None:
    """Undo that the span joined its parent's trace: it is a root, and takes nothing over, nor whether that is kept.

    For a span that nobody has seen yet, before it is sampled.
    """
    scope = span.scope
    if span.is_left_out:
        span.start_mono_ns = 0
        cause = GapCause.SAMPLED if scope.left_out == TRACE_LEFT_OUT else GapCause.BUDGET
        span.recording.left_out.take_back(cause)
    if scope.tree is not None:
        scope.tree.spans -= 1
    span.parent, span.depth, span.scope = None, 0, NOTHING


def _tree_of(ancestor: SpanRef) -> Tree:
    tree = ancestor.scope.tree
    if tree is None:
        ancestor.scope = ancestor.scope.copy()
        tree = ancestor.scope.tree = Tree(1)
    return tree
