"""The rules of the tree of pools, in the original's order; the first broken one is reported."""

from __future__ import annotations

from peloton.actors.resources import EPSILON, Resources, amount
from peloton.actors.respool.messages import ROOT, PoolConfig, pool_key
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key, Refused, Unavailable

INVALID, NOT_FOUND, BUSY, NOT_LEAF = "INVALID_CONFIG", "NOT_FOUND", "BUSY", "NOT_LEAF"


def check(tree: Tree, pool: Key, *, config: PoolConfig) -> Refused | Unavailable | None:
    """Return the refusal if `pool` may not have this config; it may exist (update) or not (create).

    Unavailable: it is not known yet, since no host is up.
    """
    return (
        _own(pool, config)
        or _parent(tree, pool, config=config)
        or _limit(tree, config)
        or _siblings(tree, pool, config=config)
        or _reservations(tree, pool, config=config)
        or _controller(config)
    )


def check_orphan(config: PoolConfig) -> Refused | Unavailable | None:
    """Return the refusal of a new pool of this config whose parent does not exist."""
    return check(Tree(), pool_key("new"), config=config)  # any key: the rules name only the parent


def check_forced(tree: Tree, pool: Key, *, config: PoolConfig) -> Refused | None:
    """Return the refusal by rules that hold even for a forced update: else the tree would break."""
    if pool == ROOT or config.parent == pool:
        return _own(pool, config)
    if config.parent != tree.pools[pool].config.parent:
        return Refused(INVALID, "parent override not allowed", "config.parent")
    return None


def check_delete(tree: Tree, pool: Key) -> Refused | None:
    """Return the refusal if `pool` may not be deleted."""
    if pool not in tree.pools:
        return Refused(NOT_FOUND, "resource pool not found", "path")
    if pool == ROOT:
        return Refused(INVALID, "the root resource pool cannot be deleted", "path")
    if tree.count_below(pool):
        return Refused(NOT_LEAF, f"resource pool {tree.path(pool)} is not a leaf", "path")
    # Not use and demand: tasks may request nothing, and would wait for ever without their pool.
    if tree.members(pool):
        text = f"resource pool {tree.path(pool)} is busy: it has tasks that run or wait"
        return Refused(BUSY, text, "path")
    return None


def _own(pool: Key, config: PoolConfig) -> Refused | None:
    if pool == ROOT:
        return Refused(INVALID, "cannot change the root resource pool", "id")
    if config.problem:
        return Refused(INVALID, config.problem, "config")
    if not config.name:
        return Refused(INVALID, "resource pool name is empty", "config.name")
    if "/" in config.name:
        return Refused(INVALID, f"resource pool name {config.name!r} has a slash", "config.name")
    for kind, reserved, limit in _kinds(config.reservation, config.limit):
        if reserved - limit >= EPSILON:
            text = (
                f"resource {kind}: reservation {amount(reserved):g} exceeds limit {amount(limit):g}"
            )
            return Refused(INVALID, text, f"config.resources[{kind}].reservation")
    if config.parent == pool:
        return Refused(INVALID, "resource pool cannot be its own parent", "config.parent")
    return None


def _parent(tree: Tree, pool: Key, *, config: PoolConfig) -> Refused | None:
    if config.parent not in tree.pools:
        named = config.parent.partition("/")[2]
        return Refused(INVALID, f"parent resource pool {named} not found", "config.parent")
    known = tree.pools.get(pool)
    if known is not None and known.config.parent != config.parent:
        return Refused(INVALID, "parent override not allowed", "config.parent")
    # A parent cannot run tasks, so those of a leaf that became one would be stuck.
    busy = tree.members(config.parent) > 0
    if busy and config.parent != ROOT and not tree.count_below(config.parent):
        text = f"parent resource pool {tree.path(config.parent)} has tasks: it stays a leaf"
        return Refused(INVALID, text, "config.parent")
    return None


def _limit(tree: Tree, config: PoolConfig) -> Refused | Unavailable | None:
    most = tree.limit(config.parent)
    if config.parent == ROOT and any(config.limit.amounts()) and not any(most.amounts()):
        # A refusal is stored under the request's key and so final; this ends when a host is up.
        return Unavailable("no host is up yet, so the cluster has no capacity for a pool")
    for kind, limit, above in _kinds(config.limit, most):
        if limit - above >= EPSILON:
            text = (
                f"resource {kind}: limit {amount(limit):g} exceeds "
                f"limit {amount(above):g} of parent {tree.path(config.parent)}"
            )
            if config.parent == ROOT:
                text += ", which is what all hosts have together"
            return Refused(INVALID, text, f"config.resources[{kind}].limit")
    return None


def _siblings(tree: Tree, pool: Key, *, config: PoolConfig) -> Refused | None:
    for sibling in tree.named(config.parent, config.name):
        if sibling != pool:
            text = f"resource pool {tree.path(sibling)} already exists"
            return Refused(INVALID, text, "config.name")
    return None


def _reservations(tree: Tree, pool: Key, *, config: PoolConfig) -> Refused | None:
    """Refuse reservations that exceed the parent's.

    A config that reserves no more than before is accepted, though the sum may be too high: the
    cluster may have shrunk below the reservations that exist.
    """
    known = tree.pools.get(pool)
    # Of the same parent, as was checked before.
    before = known.config.reservation if known is not None else Resources()
    others = tree.reserved(config.parent) - before
    if config.parent == ROOT:
        most = tree.limit(ROOT)
    else:
        most = tree.pools[config.parent].config.reservation
    raised = [now > then for _, now, then in _kinds(config.reservation, before)]
    for is_raised, (kind, reserved, above), (_, rest, _) in zip(
        raised,
        _kinds(others + config.reservation, most),
        _kinds(others + before, most),
        strict=True,
    ):
        if is_raised and reserved - above >= EPSILON:
            text = (
                f"resource {kind}: reservations of all children {amount(reserved):g} exceed "
                f"reservation {amount(above):g} of parent {tree.path(config.parent)}"
            )
            if config.parent == ROOT and rest - above >= EPSILON:
                text += f": the cluster has shrunk below the {amount(rest):g} that are reserved"
            return Refused(INVALID, text, f"config.resources[{kind}].reservation")
    return None


def _controller(config: PoolConfig) -> Refused | None:
    percent = config.controller_percent
    if percent is not None and percent > 100:
        text = f"controller limit {percent:g} exceeds 100 percent"
        return Refused(INVALID, text, "config.controllerLimit.maxPercent")
    return None


def _kinds(left: Resources, right: Resources) -> list[tuple[str, int, int]]:
    return list(zip(Resources.KINDS, left.amounts(), right.amounts(), strict=True))
