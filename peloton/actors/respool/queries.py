"""Answers to queries: one pool with those above it, or pages of all.

One pool costs its path to the root, a page the pools it shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from peloton.actors.resources import Resources
from peloton.actors.respool import messages as m
from peloton.actors.respool.lanes import lanes_of
from peloton.actors.respool.shortage import why_head_waits
from peloton.actors.respool.state import Pool
from peloton.actors.respool.tree import Tree
from peloton.actors.respool.walks import find_pool, walk_pools
from peloton.runtime.vocabulary import At, Key


def list_pools(pool: Pool, query: m.ListPools, at: At) -> tuple[m.PoolView, ...]:
    """Return every pool of the tree, or a page of them."""
    tree: Tree = at.index
    if query.parent is None:
        found: Iterator[Key] = walk_pools(tree, query.after)
    else:
        found = tree.below(query.parent, after=query.after[-1] if query.after else None)
    return tuple(view(tree, key) for key in islice(found, query.most or None))


def get_pool(pool: Pool, query: m.GetPool, at: At) -> tuple[m.PoolView, ...]:
    """Return one pool and those above it."""
    tree: Tree = at.index
    key = find_pool(tree, query.path) if query.path else query.pool
    if key is None or key not in tree.pools:
        return ()
    if query.config_only:
        return tuple(_view(tree, each, use=False) for each in tree.up(key))
    above = (_view(tree, each) for each in tree.up(key)[1:])
    return (view(tree, key, children=query.children), *above)


def list_queue(pool: Pool, query: m.ListQueue, at: At) -> tuple[m.QueuedLot, ...]:
    """Return the lots that wait in a pool, in order."""
    tree: Tree = at.index
    left, found = query.most, []
    queues = [tree.queues[lane] for lane in lanes_of(query.pool) if lane in tree.queues]
    for key in chain.from_iterable(queue.in_order() for queue in queues):
        if left <= 0:
            break
        for each in tree.unit(key).lots or (key,):
            lot = tree.lots[each]
            waiting = lot.waiting.lowest(left)
            left -= len(waiting)
            if waiting:
                found.append(m.QueuedLot(each, lot.crowd, waiting))
    return tuple(found)


def pool_history(pool: Pool, query: m.GetPoolHistory, at: At) -> m.PoolHistory | None:
    """Return what a pool held, borrowed and left to others, as far back as it has kept it."""
    tree: Tree = at.index
    found = find_pool(tree, query.path)
    if found is None or found not in tree.pools:
        return None
    tree.note(at.now)
    kept = tree.pools[found].hours
    return m.PoolHistory(tree.path(found), kept, tree.lending.open_hour(found, at.now))


def view(tree: Tree, pool: Key, *, children: bool = True) -> m.PoolView:
    """Return a pool as clients see it; the root shows the cluster's capacity as its own."""
    below = tuple(sorted(tree.below(pool))) if children else ()
    texts = [text for at in lanes_of(pool) for text in (why_head_waits(tree, at), tree.verdict(at))]
    return _view(tree, pool, children=below, because="; ".join(filter(None, texts)))


def _view(
    tree: Tree, pool: Key, *, children: tuple[Key, ...] = (), because: str = "", use: bool = True
) -> m.PoolView:
    config = tree.pools[pool].config
    if pool == m.ROOT:
        most = tree.limit(pool)
        config = m.PoolConfig(config.name, config.parent, most, most)
    return m.PoolView(
        pool=pool,
        path=tree.path(pool),
        config=config,
        children=children,
        allocation=tree.use(pool) if use else Resources(),
        demand=tree.demand(pool) if use else Resources(),
        because=because,
        child_count=tree.count_below(pool),
        on_slack=tree.slack_use(pool) if use else Resources(),
        entitlement=tree.entitlement(pool) if use else None,
    )
