"""Proofs that all of a gang would fit on the hosts, before anything gives back for it.

First each slice of a lot that could give back says which members could leave, and where; then a
placer says, for the slice of the gang, whether all of it would have hosts, and what of that room is
not free yet. Those that hold that give back, and of the others only as many as the pools still
lack. At first those are asked that would give if hosts did not matter; if the gang does not fit
with them, all that may give anything; and if it still does not, nothing is given.

One proof runs at a time, and the next when the gang before it is admitted, so that two gangs do not
count on the same room. Proofs are soft state: what is lost is asked again after `PROOF_S`. What is
proven is checked against the pools as they are by then, and ordered by `taking_back.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from peloton.actors.job.slice.messages import AskLeavers, ProveGang
from peloton.actors.resources import Resources
from peloton.actors.respool.giving import (
    Cover,
    LookAgain,
    LotShare,
    less,
    may_lose,
    pick_givers,
    sizable,
)
from peloton.actors.respool.messages import LeaversFound
from peloton.actors.respool.moments import LaneMoments
from peloton.actors.respool.node import KINDS, ZERO
from peloton.actors.respool.proofs import PROVING, GangProof
from peloton.actors.respool.tree import Tree
from peloton.actors.task.messages import slice_of_crowd
from peloton.placement.messages import GangRoomFound
from peloton.runtime.vocabulary import Key, Send

NOT_TOGETHER = (
    "nobody gives back: with what they may give, all of the gang would not go together on the hosts"
)


NO_LANE = Key("")


class RunOn(NamedTuple):
    """A run of a lot on a host."""

    lot: Key
    host: Key


def prove(tree: Tree, lane: Key, *, cover: Cover, now: float) -> Cover | LookAgain:
    """Return the members that are to give back; for a gang once it is proven that it fits on
    hosts, else when to look again."""
    if not cover.gain[0].gang:
        return cover
    (gang,), proofs = cover.gain, tree.proofs
    held_until = _held_until(tree, lane, gang=gang.gang, now=now)
    if held_until > now:
        proofs.next[lane] = _lanes(tree, cover)
        return LookAgain(held_until, PROVING)
    proof = proofs.open
    if proof is not None and (proof.lane, proof.gang) != (lane, gang.gang):
        proof = None
    if proof is None or (proof.room is None and now >= proof.until):
        return _begin(tree, lane, cover=cover, wide=False, now=now)
    if proof.room is None:
        return LookAgain(proof.until, PROVING)
    proofs.open = None
    shares = _shares(proof, cover.short.missing) if proof.room.fits else None
    if shares is not None and may_lose(tree, cover.short, shares=shares, now=now):
        proofs.last = lane, now + tree.policy.rest_s
        return cover._replace(picked=shares, proven=True)
    if proof.wide:
        return LookAgain(now + tree.policy.rest_s, NOT_TOGETHER)
    picked, _ = pick_givers(tree, cover.short, now=now, wide=True)
    return _begin(tree, lane, cover=cover._replace(picked=picked), wide=True, now=now)


def wake_next(tree: Tree, now: float) -> None:
    """Wake the lanes that waited for the proof of another, once that is over."""
    proofs = tree.proofs
    if not proofs.next or _held_until(tree, NO_LANE, gang=(), now=now) > now:
        return
    known, proofs.next = proofs.next, {}
    for lane, lanes in known.items():
        lanes.push(lane, 0.0)


def _lanes(tree: Tree, cover: Cover) -> LaneMoments:
    return tree.reclaims.owed if cover.short.inside is None else tree.reclaims.inside


def _held_until(tree: Tree, lane: Key, *, gang: tuple[Key, ...], now: float) -> float:
    """Return until when a proof for another gang runs, or another gang may take what is proven
    for it."""
    proof, last = tree.proofs.open, tree.proofs.last
    if proof is not None and (proof.lane, proof.gang) != (lane, gang) and now < proof.until:
        return proof.until
    if last is not None and last[0] != lane and tree.waiting.head(last[0]) is not None:
        return last[1]
    return 0.0


def _begin(tree: Tree, lane: Key, *, cover: Cover, wide: bool, now: float) -> LookAgain:
    inside = cover.short.inside
    proof = GangProof(lane, cover.gain[0].gang, lanes=_lanes(tree, cover), wide=wide)
    tree.proofs.begin(proof, now)
    min_run_s = inside.min_run_s if inside is not None else 0.0
    asks = []
    for each in cover.picked:
        lot = tree.lots[each.lot]
        proof.asked[each.lot] = lot.shape.resources
        ask = AskLeavers(each.lot, proof.number, each.tasks, min_run_s)
        asks.append(Send(slice_of_crowd(lot.crowd), ask))
    tree.proofs.ask(*asks)
    return LookAgain(proof.until, PROVING)


def hear(tree: Tree, message: LeaversFound | GangRoomFound) -> None:
    """Apply an answer: ask the next question, or have the lane looked at again."""
    proof = tree.proofs.open
    if proof is None or message.number != proof.number:
        return
    if isinstance(message, GangRoomFound):
        proof.room = message
        proof.lanes.push(proof.lane, 0.0)
        return
    if message.lot not in proof.asked or message.lot in proof.leavers:
        return
    proof.leavers[message.lot] = message
    head = tree.lots.get(proof.gang[0])
    if len(proof.leavers) < len(proof.asked) or head is None:
        return
    rooms: dict[Key, Resources] = {}
    for lot, host in _runs(proof):
        rooms[host] = rooms.get(host, ZERO) + proof.asked[lot]
    ask = ProveGang(proof.number, tuple(rooms), tuple(rooms.values()))
    tree.proofs.ask(Send(slice_of_crowd(head.crowd), ask))


def _runs(proof: GangProof) -> Iterator[RunOn]:
    """Yield the runs that could end, in the order of their turn."""
    for lot in proof.asked:
        for host in proof.leavers[lot].hosts:
            yield RunOn(lot, host)


def _shares(proof: GangProof, missing: tuple[int, ...]) -> list[LotShare] | None:
    """Return the members that are to give back; None if more are needed than there are.

    First those that hold what the gang lacks on hosts, then as many as the pools still lack, of
    these first members that wait for a host.
    """
    ending = _occupants(proof)
    left = [sizable(each) for each in missing]
    less(left, (proof.asked[run.lot] for run in ending.elements()))
    idle: Counter[Key] = Counter()
    for lot, size in proof.asked.items():
        while idle[lot] < proof.leavers[lot].idle and _gives(size, left):
            idle[lot] += 1
            less(left, (size,))
    known = Counter(ending)
    for run in _runs(proof):
        if known[run]:
            known[run] -= 1  # it ends anyway
        elif _gives(proof.asked[run.lot], left):
            ending[run] += 1
            less(left, (proof.asked[run.lot],))
    if any(left):
        return None
    hosts: dict[Key, list[Key]] = {lot: [] for lot in proof.asked}
    for run in ending.elements():
        hosts[run.lot].append(run.host)
    return [
        LotShare(lot, idle[lot] + len(there), tuple(there))
        for lot, there in hosts.items()
        if there or idle[lot]
    ]


def _occupants(proof: GangProof) -> Counter[RunOn]:
    """Return the runs that hold what the gang lacks: of each host as few as it takes."""
    assert proof.room is not None
    lacks = {
        host: [sizable(each) for each in lack.amounts()]
        for host, lack in zip(proof.room.hosts, proof.room.lack, strict=True)
    }
    left = {host: [*lack] for host, lack in lacks.items()}
    chosen: dict[Key, list[Key]] = {}
    for lot, host in _runs(proof):
        if host in left and _gives(proof.asked[lot], left[host]):
            chosen.setdefault(host, []).append(lot)
            less(left[host], (proof.asked[lot],))
    found: Counter[RunOn] = Counter()
    for host, lots in chosen.items():
        for lot in [*lots]:  # a larger one may have come after those that it makes needless
            rest, others = [*lacks[host]], [*lots]
            others.remove(lot)
            less(rest, (proof.asked[each] for each in others))
            if not any(rest):
                lots.remove(lot)
        found.update(RunOn(lot, host) for lot in lots)
    return found


def _gives(size: Resources, left: list[int]) -> bool:
    amounts = size.amounts()
    return any(left[kind] and amounts[kind] for kind in KINDS)
