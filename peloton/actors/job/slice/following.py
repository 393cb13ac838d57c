"""How a slice of a daemon job follows its hosts: a member for each host that matches.

What the inventory tells becomes goals of members: to run if a host joined, to end if one left.
Members are placed as any others, each on its own host (`placing.py`). A host that is down matches
as well: its member waits for it.
"""

from __future__ import annotations

from peloton.actors.host.inventory.messages import HostsTold, UnfollowHosts
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.homes import HOMES_EVOLVE, Homes
from peloton.actors.job.slice.state import NO_MEMBERS, Slice
from peloton.actors.task.messages import WANTED, Policy, SetTaskGoal, TaskGoals
from peloton.actors.task.state import ENDED, Admission, Task
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Key, Send, counted

HOST_LEFT = "its host left those that its job is for"
NOT_FOLLOWED = "it does not follow hosts any more"
FULL = "no number is left for %d hosts: a slice has a thousand"


def hosts_found(slice_: Slice, message: HostsTold, at: At) -> Decision:
    """Run the members of hosts that match, and end those of hosts that match no more."""
    homes = slice_.homes
    if homes is None or slice_.goal not in WANTED:
        return not_followed(message, at)
    if message.asked != homes.asked or message.version <= homes.seen:
        return Decision(because="it is known, or was not asked for")
    if message.previous and message.previous != homes.seen:
        ask = HOMES_EVOLVE[f.HostsMissed](homes, f.HostsMissed()).ask
        return Decision(facts=(f.HostsMissed(),), sends=(ask,), because="a change was missed")
    fact = _seen(homes, message)
    after = HOMES_EVOLVE[f.HostsSeen](homes, fact)
    sends = _ended(slice_, after.leaving - homes.leaving)
    sends += _run(slice_, homes.leaving - after.leaving - slice_.stopped)
    joined = counted(len(fact.joined), "host joined", many="hosts joined")
    because = f"{joined}, {len(fact.left)} left" if fact.joined or fact.left else ""
    return Decision(facts=(fact,), sends=tuple(sends), because=because)


def not_followed(message: HostsTold, at: At) -> Decision:
    """Answer that no slice follows hosts here."""
    return Decision(sends=(Send(SENDER, UnfollowHosts(message.asked)),), because=NOT_FOLLOWED)


def _seen(homes: Homes, message: HostsTold) -> f.HostsSeen:
    """Return what the message changes."""
    joined = tuple(host for host in message.joined if not homes.knows(host))
    if message.previous:
        return f.HostsSeen(message.version, joined, tuple(filter(homes.knows, message.left)))
    every, found = (*sorted(homes.members), *homes.waiting), frozenset(message.joined)
    left = sorted(host for host in every if host not in found and homes.knows(host))
    return f.HostsSeen(message.version, joined, tuple(left))


def home_step(slice_: Slice, at: At) -> Decision | None:
    """Free the numbers of members that have ended, and give free ones to hosts without one."""
    homes = slice_.homes
    if homes is None or not (homes.leaving or homes.waiting):
        return None
    over = Bits(at.index.where(_is_over)) if at.index is not None else NO_MEMBERS
    gone = homes.leaving & over
    if gone:
        return Decision(facts=(f.HomesLeft(gone),), because=HOST_LEFT)
    if not homes.waiting:
        return None
    free = (slice_.waiting | over) - homes.placed - slice_.stopped - _being_stopped(slice_)
    some = free.lowest(len(homes.waiting))
    if not some:
        return None
    given = f.HomesGiven(some, homes.waiting[: len(some)])
    sends = [*_created(slice_, some & slice_.waiting), *_run(slice_, some - slice_.waiting)]
    because = counted(len(some), "host joined", many="hosts joined")
    if len(some) < len(homes.waiting):
        because = FULL % (len(homes.waiting) - len(some))
    return Decision(facts=(given,), sends=tuple(sends), because=because)


def _being_stopped(slice_: Slice) -> Bits:
    """Return members that a workflow stops: no host that joins meanwhile gets one of them."""
    rollout = slice_.rollout
    if rollout is None or not rollout.order.stops:
        return NO_MEMBERS
    left = NO_MEMBERS if rollout.order.over else rollout.order.members or NO_MEMBERS
    return left | rollout.downed


def _is_over(task: Task) -> bool:
    ended = task.state in ENDED and task.admission == Admission.NONE
    return ended and task.goal == TaskGoals.KILLED and task.renewal is None


def _created(slice_: Slice, some: Bits) -> list[Send]:
    sends = []
    for spec, (row, group) in enumerate(zip(slice_.specs, slice_.closed, strict=False)):
        if group & some:
            first = slice_.version, slice_.goal, row.policy, spec, row.lot
            task = SetTaskGoal(*first, config_version=row.config_version)
            sends.append(Send(slice_.crowd, task, group & some))
    return sends


def _run(slice_: Slice, some: Bits) -> list[Send]:
    """Return the orders to run members, which have been on other hosts, or are on theirs again."""
    if not some:
        return []
    goal = SetTaskGoal(slice_.version, slice_.goal, Policy(), 0, Key(""), fresh=True)
    return [Send(slice_.crowd, goal, some)]


def _ended(slice_: Slice, some: Bits) -> list[Send]:
    if not some:
        return []
    goal = SetTaskGoal(slice_.version, TaskGoals.KILLED, Policy(), 0, Key(""), HOST_LEFT)
    return [Send(slice_.crowd, goal, some)]


def asked_of_inventory(slice_: Slice) -> tuple[Send, ...]:
    """Return the question which hosts match, repeated until it is answered."""
    homes = slice_.homes
    if homes is None or homes.seen or slice_.goal not in WANTED:
        return ()
    return (homes.ask,)
