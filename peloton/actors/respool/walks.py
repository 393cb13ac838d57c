"""Ways through the tree of pools: to the pool at a path, and along all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key


def find_pool(tree: Tree, path: str) -> Key | None:
    """Return the pool at a path, or None."""
    pool, names = ROOT, [part for part in path.split("/") if part]
    for at, name in enumerate(names):
        found = tree.named(pool, name)
        if not found:
            # A forced update may have put slashes into a name.
            return next(iter(tree.named(pool, "/".join(names[at:]))), None)
        pool = found[0]
    return pool


def walk_pools(tree: Tree, after: Sequence[tuple[str, Key]] | None = None) -> Iterator[Key]:
    """Yield every pool, parents before children, siblings by name; with `after`, those behind that
    pool.

    `after` is the path to it, without the root: the name and key of each pool. It need not exist
    any more.
    """
    if ROOT not in tree.pools:
        return
    if after is None:
        yield ROOT
    open_pools, at = [], ROOT
    for named in after or ():
        open_pools.append((at, bisect_right(tree.siblings(at), named)))
        at = named[1]
    open_pools.append((at, 0))
    while open_pools:
        pool, number = open_pools.pop()
        siblings = tree.siblings(pool)
        if number < len(siblings):
            child = siblings[number][1]
            open_pools += [(pool, number + 1), (child, 0)]
            yield child
