"""A crowd: the entities of one parent that are alike, stored and decided by equal states.

Turns a message to a set of members into one turn per class of equal states. The functions of the
kind are written for one member and never see how many there are. A crowd splits members by state
and applies the outcome of a turn; the shard decides, journals and sends.

    classes   {state: members}     members are the bits of an integer
    columns   values that differ from member to member (core/entities/columns.py), such as the host;
              the column `since` is the runtime's own: when the present deadline began

A turn first computes all new states (`split`, then `take_turn` per class, by the shard); only
`apply` writes, from checked values, so a turn that fails changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from peloton.runtime.core.entities.columns import Columns
from peloton.runtime.core.entities.deadlines import tick_at, tick_of
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Bits, Fact, Key, members_of

_Write = tuple[str, int, tuple[Any, ...]]  # column, members, one value for each or for all
_Deadline = tuple[str, float]


class Crowd:
    """The members of one parent, by state."""

    __slots__ = ("buckets", "classes", "columns", "key", "kind", "parent")

    def __init__(self, kind: Kind, key: Key) -> None:
        assert kind.crowd is not None
        self.kind = kind
        self.key = key
        self.parent = kind.crowd.parent(key)  # the key of the cell that is the parent of all
        self.classes: dict[Any, int] = {}
        self.columns = Columns()
        self.buckets: dict[int, int] = {}  # members by the tick of their deadline

    def split(self, raw: int) -> list[tuple[Any, int]]:
        """Split the members of `raw` by state, by lowest member; state None for those absent."""
        parts = []
        for state, bits in self.classes.items():
            hit = bits & raw
            if hit:
                parts.append((state, hit))
                raw &= ~hit
                if not raw:
                    break
        if raw:
            parts.append((None, raw))
        if len(parts) > 1:
            parts.sort(key=_lowest)
        return parts

    def apply(self, raw: int, change: ClassChange, now: float) -> None:
        """Move the members in `raw` from state `change.old` to `change.new`.

        The kind's functions are called first: if one raises, the crowd is unchanged.
        """
        old, new = change.old, change.new
        writes = self._writes(raw, change, now)
        after = self.kind.deadline(new) if new is not None else None
        before = self.kind.deadline(old) if old is not None else None
        if new != old:
            self._move(raw, old, new=new)
        for name, members, values in writes:
            self.columns.write_each(name, members, values=values)
        if after is not None and after != before:
            self._mark_deadline(raw, now, before=before, after=after)

    def due(self, now_s: float) -> Iterator[tuple[str, int]]:
        """Yield the deadlines that have come and still apply: pairs (name, members)."""
        candidates = 0
        for tick in sorted(self.buckets):
            if tick > tick_at(now_s):
                break
            candidates |= self.buckets.pop(tick)
        for state, raw in self.split(candidates):
            deadline = self.kind.deadline(state) if state is not None else None
            if deadline is None:
                continue
            name, seconds = deadline
            ripe = 0
            for since, members in self.columns.groups("since", raw):
                if tick_of(since + seconds) <= tick_at(now_s):
                    ripe |= members
                else:
                    self._bucket(tick_of(since + seconds), members)
            if ripe:
                yield name, ripe

    def still_due(self, state: Any, raw: int, *, name: str, now_s: float) -> int:
        """Return the members of a class whose present deadline has this name and has come."""
        deadline = self.kind.deadline(state) if state is not None else None
        if deadline is None or deadline[0] != name:
            return 0
        ripe = 0
        for since, members in self.columns.groups("since", raw):
            if tick_of(since + deadline[1]) <= tick_at(now_s):
                ripe |= members
        return ripe

    def rebuild_deadlines(self) -> None:
        """Derive all buckets from states and `since`, after recovery."""
        self.buckets = {}
        for state, raw in self.classes.items():
            deadline = self.kind.deadline(state)
            if deadline is not None:
                for since, members in self.columns.groups("since", raw):
                    self._bucket(tick_of(since + deadline[1]), members)

    @property
    def next_tick(self) -> int | None:
        """The tick of the earliest deadline."""
        return min(self.buckets, default=None)

    @property
    def present(self) -> int:
        """Every member that exists, as bits."""
        return self.columns.present

    def where(self, test: Callable[[Any], object]) -> int:
        """Return the members whose state passes `test`."""
        found = 0
        for state, raw in self.classes.items():
            if test(state):
                found |= raw
        return found

    def any(self, test: Callable[[Any], object]) -> bool:
        """Return whether the state of some member passes `test`."""
        return any(map(test, self.classes))

    def count(self, by: Callable[[Any], Any]) -> Mapping[Any, int]:
        """Return numbers of members by `by(state)`, in the order of their first classes."""
        counts: dict[Any, int] = {}
        for state, raw in self.classes.items():
            name = by(state)
            counts[name] = counts.get(name, 0) + raw.bit_count()
        return counts

    def state_of(self, member: int) -> Any:
        """Return the state of one member, or None."""
        for state, raw in self.classes.items():
            if raw >> member & 1:
                return state
        return None

    def members(self) -> Bits:
        """Return every member that exists, as a value."""
        return Bits(self.columns.present)

    def copy(self) -> Crowd:
        """Return an independent copy: states are values, so only the tables are copied."""
        twin = Crowd(self.kind, self.key)
        twin.classes = dict(self.classes)
        twin.columns = self.columns.copy()
        return twin

    def _move(self, raw: int, old: Any, *, new: Any) -> None:
        if old is not None:
            left = self.classes[old] & ~raw
            if left:
                self.classes[old] = left
            else:
                del self.classes[old]
        if new is not None:
            self.classes[new] = self.classes.get(new, 0) | raw
            if old is None:
                self.columns.add(raw)
        else:
            self.columns.remove(raw)

    def _writes(self, raw: int, change: ClassChange, now: float) -> list[_Write]:
        crowd_kind = self.kind.crowd
        assert crowd_kind is not None
        writes: list[_Write] = []
        for fact in change.facts if change.new is not None else ():
            column = crowd_kind.per_member.get(type(fact))
            if column is not None and change.values:
                if len(change.values) not in (1, raw.bit_count()):
                    text = f"{len(change.values)} values for {raw.bit_count()} members"
                    raise ValueError(f"{self.key}: {text}")
                writes.append((column, raw, change.values))
            archive = crowd_kind.archive.get(type(fact))
            if archive is not None:
                so_far = [*writes]
                for member in members_of(raw):
                    read = functools.partial(self._read, member, writes=so_far)
                    kept = archive(change.old, fact, read=read)
                    writes += [(name, 1 << member, (value,)) for name, value in kept.items()]
            write = crowd_kind.write.get(type(fact))
            if write is not None:
                writes += [(name, raw, (value,)) for name, value in write(fact, now).items()]
        return writes

    def _read(self, member: int, name: str, *, writes: list[_Write]) -> Any:
        """Return the value of one member in a column, as it will be after these writes."""
        for column, raw, values in reversed(writes):
            if column == name and raw >> member & 1:
                at = (raw & (1 << member) - 1).bit_count()
                return values[at if len(values) > 1 else 0]
        return self.columns.read(name, member)

    def _mark_deadline(
        self, raw: int, now: float, *, before: _Deadline | None, after: _Deadline
    ) -> None:
        if before is not None and before[0] == after[0]:
            # The same deadline, so `since` stays; only its length is new.
            for since, members in self.columns.groups("since", raw):
                self._bucket(tick_of(since + after[1]), members)
            return
        self.columns.write("since", raw, value=now)
        self._bucket(tick_of(now + after[1]), raw)

    def _bucket(self, tick: int, raw: int) -> None:
        self.buckets[tick] = self.buckets.get(tick, 0) | raw


class ClassChange:
    """The change of one class from a state to the next, of a turn or of a journaled entry."""

    __slots__ = ("facts", "new", "old", "values")

    def __init__(
        self, old: Any, new: Any, *, facts: tuple[Fact, ...], values: tuple[Any, ...] = ()
    ) -> None:
        self.old = old
        self.new = new
        self.facts = facts
        self.values = values


def values_for(raw: int, members: int, *, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of the members in `raw`, out of one value per member of `members`."""
    if len(values) <= 1 or raw == members:
        return values
    by_member = dict(zip(members_of(members), values, strict=True))
    return tuple(by_member[member] for member in members_of(raw))


def _lowest(part: tuple[Any, int]) -> int:
    return part[1] & -part[1]
