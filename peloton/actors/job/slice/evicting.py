"""Which members of a slice give up what they hold, when their pool has to give back.

An order of a lot (so many) becomes members: first those that wait for a host, which lose no work;
then those that run, the newest first, for they lose the least. Of a service no more of these are
ended than it can spare. A run is ended only if its host then has room for a task that waits for it:
a placer says what hosts have free. A gang that forms waits for its admission as one again. For a
gang others have proven on which hosts runs are to end (`respool/proving.py`): the slice says who
could, and then those end. The choice is journaled with its order, so that a repeat gets the same
members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from peloton.actors.job.slice.availability import (
    asking_for,
    members_of_runs,
    spare_of,
    spared,
    told,
)
from peloton.actors.job.slice.facts import DisruptionWanted, GangFormed, MembersEvicted
from peloton.actors.job.slice.folds import EVOLVE
from peloton.actors.job.slice.messages import AskLeavers, Evict
from peloton.actors.job.slice.rollout_messages import SparedFor
from peloton.actors.job.slice.state import PendingEviction, Slice, WishNotes
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import Yielded
from peloton.actors.respool.messages import LeaversFound
from peloton.actors.task.messages import WANTED, GiveWay, JoinGang, KillCause
from peloton.actors.task.state import Task, TaskStates, ready_for_host
from peloton.placement.messages import PLACER_ANY, AskRoom, RoomFound
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Key, Send, counted

DISRUPTION_WANTED_S = 10.0
"""For so long a slice asks its job for what does not wait; after it, others may have it again."""
NO_GAIN = "no task that waits would fit on the hosts of the others"
NO_SPARE = "no more of its instances may be down at once"
NO_MORE = "no others run or wait for a host"
YOUNG = "no others have run for {} s, or wait for a host"
NO_SLICE = "the slice is gone"
ENDED = "the others have ended, or wait no more"


def evict(slice_: Slice, message: Evict, at: At) -> Decision:
    """Choose members for an order, or ask first what their hosts have free."""
    lot = at.sender
    assert lot is not None
    for last in slice_.evictions:
        if last.lot == lot and last.number >= message.number:
            answer = Yielded(last.number, last.going, last.because)
            return Decision(sends=(Send(SENDER, answer),), because="order known")
    order = PendingEviction(
        lot,
        message.number,
        message.count,
        message.need,
        message.reason,
        message.min_run_s,
        hosts=message.hosts,
    )
    if order.hosts is not None:
        idle, running = _candidates(slice_, lot, min_run_s=order.min_run_s, at=at)
        ending = _on_hosts(running, order.hosts, at)[: spare_of(slice_, at.index)]
        chosen = idle[: order.count - len(order.hosts)] + ending
        return _carry_out(slice_, order, at, chosen=chosen)
    return _decided(slice_, order, at)


def _decided(slice_: Slice, order: PendingEviction, at: At, *, last: bool = False) -> Decision:
    """Choose now, or ask first: a placer, or the job if other slices share what may be down."""
    idle, running = _candidates(slice_, order.lot, min_run_s=order.min_run_s, at=at)
    chosen = idle[: order.count]
    spare = spare_of(slice_, at.index)
    if running and not spare and len(chosen) < order.count and not last and _shares(slice_):
        count = max(min(order.count - len(chosen), len(running)), slice_.disruption_wanted)
        wanted = (DisruptionWanted(count),) if count > slice_.disruption_wanted else ()
        after = _noted(order, msgspec.structs.replace(at, notes=wanting_disruption(at)), spare=True)
        sends, because = asking_for(slice_, *wanted), "asks its job whom it can spare"
        return Decision(facts=wanted, sends=sends, because=because, notes=after)
    if len(chosen) == order.count or not (running and spare) or order.need == Resources():
        most = min(order.count - len(chosen), spare)
        return _carry_out(slice_, order, at, chosen=chosen + running[:most])
    hosts = tuple(dict.fromkeys(_hosts(running, at)))
    ask = Send(PLACER_ANY, AskRoom(at.key, order.lot, order.number, hosts))
    after = _noted(order, at, spare=False)
    return Decision(sends=(ask,), because="asks what hosts have free", notes=after)


def _shares(slice_: Slice) -> bool:
    return slice_.budget is not None and slice_.budget.most > slice_.budget.allowance


def wanting_disruption(at: At) -> WishNotes:
    """Return the notes of a slice that asks its job for more, from now on."""
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    return msgspec.structs.replace(notes, disruption_until=at.now + DISRUPTION_WANTED_S)


def _noted(order: PendingEviction, at: At, *, spare: bool) -> WishNotes:
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    others = tuple(each for each in notes.evicting if each.lot != order.lot)
    order = msgspec.structs.replace(order, spare=spare)
    return msgspec.structs.replace(notes, evicting=(*others, order))


def disruption_over(
    slice_: Slice, at: At, *, but: Key | None = None
) -> tuple[DisruptionWanted, ...]:
    """Return the fact that no more disruption is wanted of the job.

    It is empty while an order of a lot, other than `but`, waits for the wish.
    """
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    waits = any(each.spare and each.lot != but for each in notes.evicting)
    return (DisruptionWanted(0),) if slice_.disruption_wanted and not waits else ()


def spared_step(slice_: Slice, at: At, *, last: bool = False) -> Decision | None:
    """Carry out the orders that waited for the job.

    `last`: with what the job has given, if anything.
    """
    found: Decision | None = None
    while (order := _first_waiting(at)) is not None and (last or spare_of(slice_, at.index)):
        done = _decided(slice_, order, at, last=True)
        for fact in done.facts:
            slice_ = EVOLVE[type(fact)](slice_, fact) or slice_
        at = msgspec.structs.replace(at, notes=done.notes)
        before = found if found is not None else Decision()
        facts, sends = (*before.facts, *done.facts), (*before.sends, *done.sends)
        found = Decision(facts, sends, because=before.because or done.because, notes=done.notes)
    return found


def _first_waiting(at: At) -> PendingEviction | None:
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    return next((each for each in notes.evicting if each.spare), None)


def evict_nobody(message: Evict, at: At) -> Decision:
    """Answer that the slice is gone, and its tickets are or will be released."""
    return Decision(sends=(Send(SENDER, Yielded(message.number, (), NO_SLICE)),), because=NO_SLICE)


def say_leavers(slice_: Slice, message: AskLeavers, at: At) -> Decision:
    """Answer which members could give back; no member does yet."""
    idle, running = _candidates(slice_, message.lot, min_run_s=message.min_run_s, at=at)
    left = min(max(0, message.count - len(idle)), spare_of(slice_, at.index))
    hosts = tuple(_hosts(running[:left], at))
    found = LeaversFound(message.lot, message.number, min(len(idle), message.count), hosts)
    return Decision(sends=(Send(SENDER, found),))


def no_leavers(message: AskLeavers, at: At) -> Decision:
    """Answer that no member is left."""
    found = LeaversFound(message.lot, message.number, 0, ())
    return Decision(sends=(Send(SENDER, found),), because=NO_SLICE)


def room_found(slice_: Slice, message: RoomFound, at: At) -> Decision:
    """End the runs that make room for a waiting task, given what the hosts have free."""
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    asked = (message.lot, message.number)
    order = next((each for each in notes.evicting if (each.lot, each.number) == asked), None)
    if order is None or any(
        last.lot == order.lot and last.number >= order.number for last in slice_.evictions
    ):
        return Decision(because="no order waits for this")
    idle, running = _candidates(slice_, order.lot, min_run_s=order.min_run_s, at=at)
    chosen = idle[: order.count]
    free = dict(zip(message.hosts, message.free, strict=True))
    victims = zip(running, _hosts(running, at), strict=True)
    size = next(row.lot_shape.resources for row in slice_.specs if row.lot == order.lot)
    left = min(order.count - len(chosen), spare_of(slice_, at.index))
    chosen += gaining(victims, free, size=size, need=order.need, most=left)
    return _carry_out(slice_, order, at, chosen=chosen)


def gaining(
    victims: Iterable[tuple[int, Key]],
    free: Mapping[Key, Resources | None],
    *,
    size: Resources,
    need: Resources,
    most: int,
) -> list[int]:
    """Return the victims, in this order, that make room for one more task on their hosts.

    Several small ones of one host may be needed for a large task: then all of them, or none.
    """
    chosen: list[int] = []
    rooms = {host: found for host, found in free.items() if found is not None}
    open_: dict[Key, list[int]] = {}  # by host: victims that do not make room yet
    for member, host in victims:
        if len(chosen) >= most:
            break
        room = rooms.get(host)
        if room is None:
            continue  # it takes no tasks
        group = open_.setdefault(host, [])
        group.append(member)
        after = room + size.times(len(group))
        if not need.within(after) or len(chosen) + len(group) > most:
            continue
        chosen += group
        # The task that waits has its room; what is over counts for the next one.
        rooms[host] = after - need
        open_[host] = []
    return chosen


def _candidates(
    slice_: Slice, lot: Key, *, min_run_s: float, at: At
) -> tuple[list[int], list[int]]:
    """Return members of the lot that wait for a host, and those that run; in the order of their
    turn.

    Those that have not run for as long as the order leaves them alone are left out.
    """
    if at.index is None or slice_.goal not in WANTED:
        return [], []
    ready: int = at.index.where(ready_for_host)
    if slice_.forming.raw & ~at.index.where(_waits):
        ready &= (
            ~slice_.forming.raw
        )  # hosts have granted some of it, or have just been told to give back
    idle = _of_lot(ready, lot, at)
    read = at.index.columns.read
    running = [
        (-(read("started_at", each) or 0.0), -each)
        for each in _of_lot(_running(slice_, at), lot, at)
    ]
    latest = min_run_s - at.now
    newest = sorted(each for each in running if not min_run_s or each[0] >= latest)
    return sorted(idle, reverse=True), [-member for _, member in newest]


def _on_hosts(running: list[int], hosts: tuple[Key, ...], at: At) -> list[int]:
    """Return the first members on each of these hosts, as often as it is named."""
    left = Counter(hosts)
    chosen: list[int] = []
    for member, host in zip(running, _hosts(running, at), strict=True):
        if left[host]:
            left[host] -= 1
            chosen.append(member)
    return chosen


def _running(slice_: Slice, at: At) -> int:
    """Return the members that may be ended; of a service, without those that have just been told to
    end.

    Tasks that have volumes are of lots that pools ask for nothing.
    """
    running: int = at.index.where(_runs)
    if slice_.spared:
        running &= ~members_of_runs(told(slice_, at.index)).raw
    return running


def _of_lot(raw: int, lot: Key, at: At) -> Iterator[int]:
    for its_lot, members in at.index.columns.groups("lot", raw):
        if its_lot == lot:
            yield from Bits(members)


def _waits(task: Task) -> bool:
    return task.state == TaskStates.WAITING


def _runs(task: Task) -> bool:
    return task.state == TaskStates.RUNNING and task.goal in WANTED and not task.again


def _hosts(members: Iterable[int], at: At) -> Iterator[Key]:
    return (Key(at.index.columns.read("host", each) or "") for each in members)


def _carry_out(slice_: Slice, order: PendingEviction, at: At, *, chosen: list[int]) -> Decision:
    because = ""
    if len(chosen) < order.count:
        idle, running = _candidates(slice_, order.lot, min_run_s=order.min_run_s, at=at)
        why = NO_GAIN if len(idle) + len(running) > len(chosen) else NO_MORE
        if why == NO_GAIN and len(chosen) - len(idle) >= spare_of(slice_, at.index):
            why = NO_SPARE
        why = ENDED if order.hosts is not None and why == NO_GAIN else why
        if why == NO_MORE and order.min_run_s:
            why = YOUNG.format(f"{order.min_run_s:g}")
        because = f"{len(chosen)} of {order.count} give up what they hold: {why}"
    members = Bits.of(*chosen)
    going = _by_ticket(members, at)
    fact = MembersEvicted(order.lot, order.number, going, because)
    answer = Send(order.lot, Yielded(order.number, going, because))
    crowd = slice_.crowd
    sends = [
        Send(crowd, GiveWay(cause, order.reason), some)
        for cause, some in _by_cause(slice_, members, at)
    ]
    facts: tuple[Fact, ...] = (fact,)
    if slice_.budget is not None:
        facts = (*spared(slice_, members, by=SparedFor.PREEMPTION, index=at.index), fact)
        facts = (*facts, *disruption_over(slice_, at, but=order.lot))
    if slice_.forming & members:
        # What is left of a gang could not start, and would keep others from starting: it is to be
        # admitted as one again.
        facts, left = (fact, GangFormed(slice_.gang_base)), slice_.forming - members
        sends += [Send(crowd, JoinGang(slice_.gang_round + 1), left)] if left else []
    text = because or counted(len(chosen), "instance is", many="instances are")
    notes: WishNotes | None = at.notes
    if notes is not None and notes.evicting:
        others = tuple(each for each in notes.evicting if each.lot != order.lot)
        notes = msgspec.structs.replace(notes, evicting=others)
        if DisruptionWanted(0) in facts:
            notes = msgspec.structs.replace(notes, disruption_until=0.0)
    return Decision(facts, (answer, *sends), because=f"{text} preempted", notes=notes)


def _by_ticket(members: Bits, at: At) -> tuple[tuple[int, Bits], ...]:
    found: dict[int, Bits] = {}
    if members:
        for task, raw in at.index.split(members.raw):
            found[task.ticket] = found.get(task.ticket, Bits()) | Bits(raw)
    return tuple(sorted(found.items()))


def _by_cause(slice_: Slice, members: Bits, at: At) -> list[tuple[KillCause, Bits]]:
    """Return members by whether their config says that they are not run again."""
    found: dict[KillCause, Bits] = {}
    groups = at.index.columns.groups("spec", members.raw) if members else ()
    for spec, raw in groups:
        for_good = slice_.specs[spec or 0].config.kill_on_preempt
        cause = KillCause.PREEMPTED_FOR_GOOD if for_good else KillCause.PREEMPTED
        found[cause] = found.get(cause, Bits()) | Bits(raw)
    return sorted(found.items())
