"""The rollout of a slice: members that wait for leave, are under way, or are through."""

from __future__ import annotations

import msgspec

from peloton.actors.job.slice.rollout_messages import (
    RolloutOrder,
    RolloutStep,
    RolloutTally,
    RolloutView,
    StepStates,
)
from peloton.runtime.vocabulary import Bits, Value

replace = msgspec.structs.replace


class NewRow(Value, frozen=True, gc=False, array_like=True):
    """A config of a rollout, and the members that are to have it.

    The config is put at `place` of the table. `group` is the config of the opening, by its number
    there; `like` is the row before of which it is a copy, but for its version. With both it is a
    copy for members of which nothing changes but the name. `runs`: the members end their runs for
    it.
    """

    place: int
    members: Bits
    group: int | None = None
    like: int | None = None
    runs: bool = True


class Rollout(Value, frozen=True, gc=False, array_like=True):
    """How far a rollout is.

    `targets`: members that wait for leave, by the row they are to have.
    """

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
    downed: Bits = Bits()  # members that a rollout has stopped, and nobody has started since
    kept: Bits = Bits()  # members that the next update is to add
    fallen: Bits = Bits()  # of those that are done: they do their work no more, for now
    settled_at: float = 0.0  # when the last one was through, or fell
    steady: bool = False  # since then all have done their work for as long as they have to

    @property
    def unadded(self) -> Bits:
        """Return members that do not exist, and do not begin to by themselves."""
        return self.added | self.kept

    @property
    def waiting(self) -> Bits:
        """Return members that wait for leave."""
        raw = self.added.raw | self.removing.raw
        for _, members in self.targets:
            raw |= members.raw
        return Bits(raw)

    @property
    def watched(self) -> Bits:
        """Return members that have to go on doing their work until the rollout is over."""
        if not self.order.healthy_s or self.order.stops or self.order.over:
            return Bits()
        return self.done - self.removed

    @property
    def proves_until(self) -> float | None:
        """Return when the rollout is steady if no member falls.

        None while a member is not through, or the rollout is steady already, or has no members to
        watch.
        """
        if self.steady or not self.order.healthy_s or self.current or self.fallen or self.leaving:
            return None
        if self.waiting or not self.watched:
            return None
        return self.settled_at + self.order.healthy_s

    def view(self, steps: tuple[RolloutStep, ...]) -> RolloutView:
        """Return the rollout by members, for clients."""
        return RolloutView(
            number=self.order.number,
            waiting=self.waiting,
            current=self.current | self.leaving | self.fallen,
            done=self.done - self.fallen,
            failed=self.failed,
            added=self.added | self.created,
            updated=self.updated,
            removed=self.removed,
            steps=steps,
        )

    @property
    def tally(self) -> RolloutTally:
        """Return the counts of the rollout, for the job."""
        return RolloutTally(
            self.order.number,
            len(self.waiting),
            len(self.current) + len(self.leaving),
            len(self.done),
            len(self.failed),
            added=len(self.added) + len(self.created),
            updated=len(self.updated),
            removed=len(self.removed),
            downed=self.downed,
            fallen=len(self.fallen),
            steady=self.steady or not self.watched,
        )


STEPS_MAX = 64
"""Steps of rollouts that a slice keeps. Of more, the oldest ones become one: then several members
have one time, that of the last of them."""


def stepped(
    steps: tuple[RolloutStep, ...], number: int, *, state: StepStates, at: float, members: Bits
) -> tuple[RolloutStep, ...]:
    """Return the steps with one more."""
    if not members:
        return steps
    if steps and (steps[-1].number, steps[-1].state, steps[-1].at) == (number, state, at):
        return (*steps[:-1], replace(steps[-1], members=steps[-1].members | members))
    steps = (*steps, RolloutStep(number, state, at, members))
    return steps if len(steps) <= STEPS_MAX else _fewer(steps)


def _fewer(steps: tuple[RolloutStep, ...]) -> tuple[RolloutStep, ...]:
    """Return the steps with the oldest two of a kind joined; or without the oldest if no two are
    of a kind."""
    last: dict[tuple[int, StepStates], int] = {}
    for place, step in enumerate(steps):
        before = last.get((step.number, step.state))
        if before is not None:
            one = replace(step, members=step.members | steps[before].members)
            return (*steps[:before], *steps[before + 1 : place], one, *steps[place + 1 :])
        last[step.number, step.state] = place
    return steps[1:]


def permitted(rollout: Rollout, *, leave: int, over: bool) -> Rollout:
    """Return the rollout with this leave; one that is over begins nothing more.

    Members that it was to add wait for the next one. Those that it has begun to remove are removed.
    """
    rollout = replace(rollout, order=replace(rollout.order, leave=leave, over=over))
    if not over:
        return rollout
    none = Bits()
    return replace(
        rollout, targets=(), asleep=none, current=none, before=(), removing=none, fallen=none
    )


def taken(rollout: Rollout, members: Bits) -> Rollout:
    """Return the rollout once these members are under way."""
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
        downed=rollout.downed | (members if rollout.order.stops else Bits()),
    )


def born_stopped(rollout: Rollout, members: Bits) -> Rollout:
    """Return the rollout once the added ones of these members exist; they are not to run."""
    some = rollout.added & members
    return replace(
        rollout,
        added=rollout.added - some,
        created=rollout.created | some,
        done=rollout.done | some,
        kept=rollout.kept - members,
    )


def settled(rollout: Rollout, *, done: Bits, failed: Bits, fallen: Bits, at: float) -> Rollout:
    """Return the rollout once these members are through, or do their work no more."""
    return replace(
        rollout,
        current=rollout.current - done - failed,
        done=(rollout.done | done) - failed,
        failed=rollout.failed | failed,
        fallen=(rollout.fallen | fallen) - done - failed,
        settled_at=at,
        steady=False,
    )


def removed(rollout: Rollout, members: Bits, *, at: float) -> Rollout:
    """Return the rollout once these members do not exist any more.

    If they are added again, they are to run.
    """
    return replace(
        rollout,
        settled_at=at,
        leaving=rollout.leaving - members,
        done=rollout.done | members,
        downed=rollout.downed - members,
    )
