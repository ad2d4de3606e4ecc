"""Process groups by the name that all ranks know them by.

torch gives the same names on all ranks, and gives them anew after `destroy_process_group`: the second group of a
name is `0#1`. The groups that are there when this begins are the first ones. Only weak references are kept: a gloo
group that outlives `destroy_process_group` may end the interpreter with an abort.
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

ProcessGroup = Any
"""torch's own; of it `group_name` and `_get_sequence_number_for_group` are used, which its stubs do not know."""


class Group:
    """One process group.

    Attributes:
        name: Its name, the same on all ranks.
        ranks: Its global ranks, as 0-3,8; "" where unknown.
        is_gloo: Whether its host is waited for: a call has returned when it is over.
        pg: What the flight recorder calls it; None: not known yet.
        apart: By how much numbers of its calls are ahead of those of its collectives now: gloo counts p2p calls, too.
        read: Number of the last call that was read from the recorder.
        cseq: Number of that collective.
        is_mixed: Whether there were p2p calls that no wrapped call saw.
        handle: What the beacon calls it; None: not told yet.
        is_gone: Whether it was destroyed.
    """

    def __init__(self, name: str, *, ranks: str = "", is_gloo: bool = True) -> None:
        self.name = name
        self.ranks = ranks
        self.is_gloo = is_gloo
        self.pg: int | None = None
        self.apart = self.read = self.cseq = 0
        self.is_mixed = False
        self.handle: int | None = None
        self._unnumbered: list[tuple[int, int]] = []
        self._lock = threading.RLock()  # a signal may end the run while its thread is in here
        self.is_gone = False
        self._of: weakref.ref[Any] | None = None

    def bind(self, process_group: ProcessGroup) -> None:
        """Remember which of torch's it is, weakly."""
        self._of = weakref.ref(process_group)

    @property
    def process_group(self) -> ProcessGroup | None:
        """torch's, as long as it is there."""
        return None if self._of is None or self.is_gone else self._of()

    def add_unnumbered(self, number: int, more: int) -> None:
        """The call of a number took more numbers than are a collective's."""
        with self._lock:
            self._unnumbered.append((number, more))
            self.apart += more

    def apart_at(self, number: int) -> int:
        """What `apart` was for the call of a number, since the last one that was read."""
        later = sum(more for at, more in tuple(self._unnumbered) if at >= number)
        return self.apart - later

    def learn(self, number: int, cseq: int) -> bool:
        """Take from the recorder which collective had a number; whether that is what was thought."""
        with self._lock:
            is_known = self.apart_at(number) == number - cseq
            left = [each for each in self._unnumbered if each[0] > number]
            self._unnumbered = left
            self.apart = number - cseq + sum(more for _, more in left)
            self.read, self.cseq = number, cseq
        self.is_mixed |= not is_known
        return is_known

    def start(self, number: int, cseq: int) -> None:
        """Begin behind the call of a number, which is the collective of another."""
        self.learn(number, cseq)
        self.is_mixed = False

    def is_of(self, process_group: object) -> bool:
        """Whether it is that one."""
        return self._of is not None and self._of() is process_group


class Groups:
    """The groups of this process.

    Args:
        world: torch's table of groups (`distributed_c10d._world`).
        ranks_of: Global ranks of a group.
        backend_of: Name of its back end.

    Attributes:
        by_id: The groups by the `id` of torch's; the one that is there may be another's that is gone.
    """

    def __init__(self, world: Any, *, ranks_of: Any, backend_of: Any) -> None:
        self._world = world
        self._ranks_of = ranks_of
        self._backend_of = backend_of
        self._lock = threading.RLock()  # a signal may end the run while its thread is in here
        self.by_id: dict[int, Group] = {}
        self._named: dict[str, list[Group]] = {}
        self._recorded: dict[int, Group | None] = {}

    def of(self, process_group: ProcessGroup) -> Group:
        """The group that torch's is."""
        group = self.by_id.get(id(process_group))
        if group is not None and group.is_of(process_group):
            return group
        with self._lock:
            return self._made(process_group)

    def refresh(self) -> Sequence[tuple[Group, ProcessGroup]]:
        """The groups that are there now."""
        table: Mapping[Any, str] = self._world.pg_names
        return [(self.of(each), each) for each in tuple(table)]

    def recorded(self, pg: int, name: str) -> Group | None:
        """The group of the recorder's entry; None: one that was gone before this began."""
        if pg not in self._recorded:
            with self._lock:
                self._recorded[pg] = self._bound(pg, name)
        return self._recorded[pg]

    def known(self, pg: int) -> Group | None:
        """The group that the recorder calls so, if it was met."""
        return self._recorded.get(pg)

    def begin(self, recorded: Mapping[int, tuple[str, int]]) -> None:
        """Take the groups that are there as the first of their names.

        Args:
            recorded: Of each group in the recorder so far its name and its last number. Of several of a name the last
                may be the one that is there, unless that has not come so far.
        """
        numbers = {group.name: number_of(process_group) for group, process_group in self.refresh()}
        last = {name: pg for pg, (name, _) in sorted(recorded.items())}
        for pg, (name, number) in recorded.items():
            is_there = last[name] == pg and number <= numbers.get(name, 0)
            self._recorded[pg] = self._bound(pg, name) if is_there else None

    def ended(self) -> None:
        """Take those that torch no longer knows as gone."""
        there = {id(each) for each in tuple(self._world.pg_names)}
        for known in [known for known in self.by_id if known not in there]:
            self.by_id.pop(known).is_gone = True

    def _made(self, process_group: ProcessGroup) -> Group:
        name = process_group.group_name
        others = self._named.setdefault(name, [])
        if others and others[-1].process_group is None and not others[-1].is_gone:
            group = others[-1]  # the recorder told of it first
            group.ranks, group.is_gloo = self._ranks(process_group), self._is_gloo(process_group)
        else:
            group = self._another(name, process_group)
        group.bind(process_group)
        self.by_id[id(process_group)] = group
        return group

    def _another(self, name: str, process_group: ProcessGroup | None = None) -> Group:
        others = self._named.setdefault(name, [])
        label = f"{name}#{len(others)}" if others else name
        known = process_group is not None
        ranks, is_gloo = (self._ranks(process_group), self._is_gloo(process_group)) if known else ("", True)
        others.append(Group(label, ranks=ranks, is_gloo=is_gloo))
        return others[-1]

    def _bound(self, pg: int, name: str) -> Group:
        unbound = [group for group in self._named.get(name, ()) if group.pg is None]
        group = unbound[0] if unbound else self._another(name)
        group.pg = pg
        return group

    def _ranks(self, process_group: object) -> str:
        try:
            return ranks_text(self._ranks_of(process_group))
        except Exception:  # noqa: BLE001  # a group that torch does not list: its ranks are not known
            return ""

    def _is_gloo(self, process_group: object) -> bool:
        try:
            return str(self._backend_of(process_group)) in {"gloo", "mpi"}
        except Exception:  # noqa: BLE001  # likewise
            return False


def number_of(process_group: ProcessGroup) -> int:
    """How many operations a group was given; gloo counts p2p calls, too. 0 where it does not count, or is gone."""
    try:
        return process_group._get_sequence_number_for_group()
    except Exception:  # noqa: BLE001  # torch's back ends raise what they like
        return 0


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as 0-3,8: ascending, neighbours together."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)
