"""What a span is to others: its ids, and what its children take over from it.

A span's parent may live in another process, known by its ids alone; children made under either take the
same things over. What few spans name for themselves (a step, a rank, a rollout) lies in a `Scope` that a
span shares with its parent until it names something of its own: one store where it was seven.
"""

LOWER = 2**64 - 1

KEPT, SPAN_LEFT_OUT, TRACE_LEFT_OUT = range(3)
"""Whether sampling left out nothing, a span (its children belong to its parent), or its whole trace."""


class Tree:
    """The spans of one trace that this process made so far, under one root or remote parent.

    Attributes:
        spans: How many; threads may count two as one.
    """

    __slots__ = ("spans",)

    def __init__(self, spans: int = 0) -> None:
        self.spans = spans


class Scope:
    """What children take over; never changed once a child or another thread may see it.

    Attributes:
        at_step: Training step or episode; None outside one.
        microstep: Gradient-accumulation index inside it.
        microbatch: Microbatch of a pipeline; None: none.
        thread_id: Session or turn; empty: the trace.
        rollout_id: Rollout or episode of the application; empty: none.
        rank: Rank that was named; None: the process's own.
        flags: Bits of `spans.flags` that children have too.
        left_out: KEPT, SPAN_LEFT_OUT or TRACE_LEFT_OUT.
        tree: Counts the spans of the trace; None before the first child, and where sampling left something out.
    """

    __slots__ = ("at_step", "flags", "left_out", "microbatch", "microstep", "rank", "rollout_id", "thread_id", "tree")

    def __init__(self) -> None:
        self.at_step: int | None = None
        self.rank: int | None = None
        self.microbatch: int | None = None
        self.tree: Tree | None = None
        self.microstep = self.flags = self.left_out = 0
        self.thread_id = self.rollout_id = ""

    def copy(self) -> "Scope":
        """The same, to be changed before anyone else sees it."""
        made = Scope()
        for name in Scope.__slots__:
            setattr(made, name, getattr(self, name))
        return made


NOTHING = Scope()
"""What a root takes over."""


class SpanRef:
    """Ids of a span, and what its children take over.

    Attributes:
        id: The span's id, 1 to 2**64 - 1.
        trace: The trace's id, 1 to 2**128 - 1.
        parent: The span it is a child of; None: a root.
        depth: Ancestors known to the process.
        path: Names from the root, once it was needed.
        scope: What its children take over.
        inner: The span that new spans inside this one belong to, where it is not this one.
    """

    __slots__ = ("depth", "id", "parent", "path", "scope", "trace")

    id: int
    trace: int
    parent: "SpanRef | None"
    depth: int
    path: str | None
    scope: Scope
    inner: "SpanRef | None" = None

    @property
    def trace_id(self) -> str:
        """The trace's id: 32 hex digits."""
        return f"{self.trace:032x}"

    @property
    def span_id(self) -> str:
        """The span's id: 16 hex digits."""
        return f"{self.id:016x}"

    @property
    def trace_hi(self) -> int:
        """Upper half of the trace's id."""
        return self.trace >> 64

    @property
    def trace_lo(self) -> int:
        """Lower half of the trace's id."""
        return self.trace & LOWER

    @property
    def at_step(self) -> int | None:
        """Training step or episode; None outside one."""
        return self.scope.at_step

    @property
    def microstep(self) -> int:
        """Gradient-accumulation index inside the step."""
        return self.scope.microstep

    @property
    def thread_id(self) -> str:
        """Session or turn; by default the trace, by its id."""
        return self.scope.thread_id or self.trace_id

    @property
    def rollout_id(self) -> str:
        """Rollout or episode of the application; empty: none."""
        return self.scope.rollout_id

    @property
    def rank(self) -> int | None:
        """The rank named for it; None: the process's own."""
        return self.scope.rank


class RemoteParent(SpanRef):
    """A span of another process, or one that is known by its id alone.

    Args:
        trace: Its trace's id.
        span: Its id.
        scope: What children take over from it.
    """

    __slots__ = ()

    def __init__(self, trace: int, span: int, *, scope: Scope = NOTHING) -> None:
        self.trace, self.id, self.scope = trace, span, scope
        self.parent, self.depth, self.path = None, -1, ""
