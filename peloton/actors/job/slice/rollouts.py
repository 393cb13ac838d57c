"""The rollout of a slice, as facts leave it: who waits for leave, who is under way, who is through.

Must not decide who is next, nor know what a config says.
"""

from __future__ import annotations

import msgspec

from peloton.actors.job.slice.rollout_messages import RolloutOrder, RolloutTally
from peloton.runtime.vocabulary import Bits, Value

replace = msgspec.structs.replace


class NewRow(Value, frozen=True, gc=False, array_like=True):
    """A config of a rollout, and who is to have it.

    It is put at `place` of the table. `group` is the config of the opening, by its number there;
    `like` is the row before of which it is a copy, but for its version. With both it is a copy for
    members of which nothing changes but the name. `runs`: the members end their runs for it.
    """

    place: int
    members: Bits
    group: int | None = None
    like: int | None = None
    runs: bool = True


class Rollout(Value, frozen=True, gc=False, array_like=True):
    """How far a rollout is. `targets`: members that wait for leave, by the row they are to have."""

    order: RolloutOrder
    targets: tuple[tuple[int, Bits], ...] = ()
    added: Bits = Bits()  # members that wait for leave to begin to exist
    asleep: Bits = Bits()  # of `targets`, those that were stopped and are started with their leave
    current: Bits = Bits()
    created: Bits = Bits()  # members that began to exist by this
    done: Bits = Bits()
    failed: Bits = Bits()
    places: tuple[int, ...] = ()  # of its rows
    before: tuple[tuple[int, Bits], ...] = ()  # the rows of all members before it, if it keeps them
    updated: Bits = Bits()  # members that existed, and were to be changed
    removed: Bits = Bits()  # members that were to be removed
    removing: Bits = Bits()  # of these, those that wait for leave
    leaving: Bits = Bits()  # and those that end, to be removed

    @property
    def waiting(self) -> Bits:
        """Members that wait for leave."""
        raw = self.added.raw | self.removing.raw
        for _, members in self.targets:
            raw |= members.raw
        return Bits(raw)

    @property
    def tally(self) -> RolloutTally:
        """For the job."""
        return RolloutTally(
            self.order.number,
            len(self.waiting),
            len(self.current) + len(self.leaving),
            len(self.done),
            len(self.failed),
            added=len(self.added) + len(self.created),
            updated=len(self.updated),
            removed=len(self.removed),
        )


def permitted(rollout: Rollout, *, leave: int, over: bool) -> Rollout:
    """The same with this leave; one that is over begins nothing more.

    What it was to add waits for the next one. What it has begun to remove is removed.
    """
    rollout = replace(rollout, order=replace(rollout.order, leave=leave, over=over))
    if not over:
        return rollout
    return replace(rollout, targets=(), asleep=Bits(), current=Bits(), before=(), removing=Bits())


def taken(rollout: Rollout, members: Bits) -> Rollout:
    """The same once these members are under way."""
    targets = tuple((place, some - members) for place, some in rollout.targets)
    return replace(
        rollout,
        targets=tuple((place, some) for place, some in targets if some),
        added=rollout.added - members,
        asleep=rollout.asleep - members,
        current=rollout.current | (members - rollout.removing),
        created=rollout.created | (rollout.added & members),
        removing=rollout.removing - members,
        leaving=rollout.leaving | (rollout.removing & members),
    )


def born_stopped(rollout: Rollout, members: Bits) -> Rollout:
    """The same once those of these members exist that are added; they are not to run."""
    some = rollout.added & members
    return replace(
        rollout,
        added=rollout.added - some,
        created=rollout.created | some,
        done=rollout.done | some,
    )


def settled(rollout: Rollout, *, done: Bits, failed: Bits) -> Rollout:
    """The same once these members are through."""
    return replace(
        rollout,
        current=rollout.current - done - failed,
        done=rollout.done | done,
        failed=rollout.failed | failed,
    )


def removed(rollout: Rollout, members: Bits) -> Rollout:
    """The same once these members are no more."""
    return replace(rollout, leaving=rollout.leaving - members, done=rollout.done | members)
