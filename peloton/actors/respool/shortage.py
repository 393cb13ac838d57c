"""Which limit keeps a ticket waiting, and what is missing.

Turns a tree and the shape of a lot into the rule that blocks it and a text for people. Must not
admit or change anything.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.actors.mentions import job_mention, pool_mention
from peloton.actors.resources import Resources, amount
from peloton.actors.respool.lanes import lane_of, pool_of_lane
from peloton.actors.respool.lot.messages import LotWaits
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.rations import Ration
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key

TURN, LIMIT, CAPACITY, DELETED = "turn", "limit", "capacity", "deleted"
GANG = "gang"
ENTITLEMENT = "entitlement"
RATION_NAMES = {
    Ration.CONTROLLERS: "limit of {pool} for controllers",
    Ration.NON_PREEMPTIBLE: (
        "reservation of {pool}, within which tasks that may not be preempted have to stay,"
    ),
}
UNITS = {"cpu": "", "memory": " MB", "disk": " MB", "gpu": "", "slack": ""}


class Shortage(NamedTuple):
    """The rule, a text, and whether the lot can `never` be admitted, whatever others release."""

    rule: str
    text: str = ""
    never: bool = False


def shortage(tree: Tree, key: Key) -> Shortage:
    """Return what one more member of a lot, or its gang, would exceed.

    A limit below what it needs itself comes first.
    """
    pool, unit = tree.lots[key].shape.pool, tree.unit(key)
    need = unit.need
    if pool not in tree.pools:
        return Shortage(DELETED, "pool deleted")
    gang = tree.gang(key)
    if gang is not None and gang.head is None:
        came, wanted = gang.here()
        return Shortage(GANG, f"its gang is admitted as one: {came} of {wanted} have come")
    found = (
        _of_limits(tree, pool, need=need)
        or _of_rations(tree, pool, rationed=unit.rationed)
        or (_of_slack(tree, pool, need=need) if tree.lots[key].shape.on_slack else None)
        or _of_use(tree, pool, need=need)
        or _of_entitlement(tree, pool, need=need)
        or _of_aside(tree, lane_of(tree.lots[key].shape), need=need)
        or Shortage(TURN)
    )
    if gang is None or gang.head is None or not found.text:
        return found
    return found._replace(text=f"a gang of {gang.head.waiting}: {found.text}")


def _of_limits(tree: Tree, pool: Key, *, need: Resources) -> Shortage | None:
    for above in tree.up(pool):
        short = need.short_of(tree.limit(above))
        if short:
            kind = next(iter(short))
            most = f"the {_name(tree, above)} is {_shown(kind, tree.limit(above))}"
            text = f"requested {_shown(kind, need)} {kind}, but {most}"
            if above == ROOT and kind == "slack":
                text = f"requested {_shown(kind, need)} cpu of slack, but hosts have"
                text += f" {_shown(kind, tree.limit(above))}: it waits for them to have more"
                return Shortage(CAPACITY, text)
            if above == ROOT:  # hosts come, and come back: that is no proof of never
                return Shortage(CAPACITY, f"{text}: it waits for more hosts")
            return Shortage(LIMIT, f"{text}: it can never be admitted", True)
    return None


def _of_rations(
    tree: Tree, pool: Key, *, rationed: tuple[tuple[Ration, Resources], ...]
) -> Shortage | None:
    for of, need in rationed:
        most, free = tree.ration(pool, of), tree.ration_left(pool, of)
        if most is None or free is None:
            continue
        name = RATION_NAMES[of].format(pool=pool_mention(tree.path(pool)))
        short = _of_part(name, most=most, free=free, need=need)
        if short is not None:
            return short
    return None


def _of_slack(tree: Tree, pool: Key, *, need: Resources) -> Shortage | None:
    most, free = tree.slack_limit(pool), tree.slack_room(pool)
    name = f"limit of {pool_mention(tree.path(pool))} for tasks on slack"
    return _of_part(name, most=most, free=free, need=need)


def _of_part(name: str, *, most: Resources, free: Resources, need: Resources) -> Shortage | None:
    """Return what is lacking of a part of a pool that only some tasks may use."""
    for kind in need.short_of(most):
        text = f"requested {_shown(kind, need)} {kind}, but the {name} is {_shown(kind, most)}"
        return Shortage(LIMIT, f"{text}: it can never be admitted", True)
    for kind in need.short_of(free):
        text = f"{name} reached: {kind} requested {_shown(kind, need)}"
        return Shortage(LIMIT, f"{text}, {_shown(kind, free)} of {_shown(kind, most)} free")
    return None


def _of_use(tree: Tree, pool: Key, *, need: Resources) -> Shortage | None:
    for above in tree.up(pool):
        most_now, used = tree.limit(above), tree.use(above)
        free = most_now - used
        short = need.short_of(free)
        if short:
            kind = next(iter(short))
            text = (
                f"{_name(tree, above)} reached: {kind} requested {_shown(kind, need)}, "
                f"{_shown(kind, free)} of {_shown(kind, most_now)} free"
            )
            text += _largest_user(tree, above, kind=kind)
            return Shortage(CAPACITY if above == ROOT else LIMIT, text)
    return None


def _of_entitlement(tree: Tree, pool: Key, *, need: Resources) -> Shortage | None:
    entitled, used = tree.entitlement(pool), tree.use(pool)
    for kind in need.short_of(entitled - used):
        text = (
            f"{pool_mention(tree.path(pool))} is entitled to {_shown(kind, entitled)} {kind} while "
            f"other pools need theirs, and uses {_shown(kind, used)}: requested "
            f"{_shown(kind, need)}"
        )
        return Shortage(ENTITLEMENT, text)
    return None


def _of_aside(tree: Tree, lane: Key, *, need: Resources) -> Shortage | None:
    aside, pool = tree.set_aside(lane), pool_of_lane(lane)
    rooms = [tree.limit(above) - tree.use(above) for above in tree.up(pool)]
    rooms.append(tree.entitlement(pool) - tree.use(pool))
    for room in rooms if aside != Resources() else ():
        for kind in (need + aside).short_of(room):
            keeps = f"{pool_mention(tree.path(pool))} keeps {_shown(kind, aside)} {kind}"
            text = f"{keeps} for its first task that is not on slack"
            return Shortage(LIMIT, f"{text}: requested {_shown(kind, need)}")
    return None


def _largest_user(tree: Tree, pool: Key, *, kind: str) -> str:
    """The job that uses most of what is missing."""
    job, used = tree.largest_user(pool, Resources.KINDS.index(kind))
    return f"; {job_mention(job)} holds {_number(used)}{UNITS[kind]}" if used else ""


def _name(tree: Tree, pool: Key) -> str:
    return "cluster capacity" if pool == ROOT else f"limit of {pool_mention(tree.path(pool))}"


def _shown(kind: str, amounts: Resources) -> str:
    return _number(max(0, amounts.amounts()[Resources.KINDS.index(kind)])) + UNITS[kind]


def _number(millionths: int) -> str:
    return f"{amount(millionths):.10g}"


def why_head_waits(tree: Tree, lane: Key) -> str:
    """Return why the first ticket of a lane of a pool waits; "" if none does."""
    queue = tree.queues.get(lane)
    head = queue.first() if queue is not None else None
    if head is None:
        return ""
    return shortage(tree, head).text


def why_lot_waits(tree: Tree, key: Key) -> LotWaits:
    """Return why the waiting members of a lot wait, and how many tickets are before them."""
    lot = tree.lots[key]
    pool, lane = lot.shape.pool, lane_of(lot.shape)
    gang = tree.gang(key)
    head = key if gang is None else gang.head.key if gang.head is not None else None
    position = tree.queues[lane].before(head) if lot.waiting and head is not None else 0
    short = shortage(tree, key)
    because = short.text
    if not because and position:
        # It would fit, but a head that does not fit blocks it: give the reason of the head.
        tickets = "1 ticket is" if position == 1 else f"{position} tickets are"
        because = f"{tickets} before it in the queue of its pool"
        first = why_head_waits(tree, lane)
        because += f"; the first of them waits: {first}" if first else ""
    return LotWaits(
        pool=pool,
        path=tree.path(pool),
        waiting=lot.waiting,
        position=position,
        because=because,
        since=lot.arrived,
        rule=short.rule,
        never=short.never,
    )
