"""What a pool is entitled to use.

Turns the tree into an upper bound per pool. For now that is the pool's limit and nothing else: no
sharing by reservation and demand takes place yet, and admission asks only here, so that the
sharing can come without a change there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Key

if TYPE_CHECKING:
    from peloton.actors.respool.tree import Tree


def entitlement(tree: Tree, pool: Key) -> Resources:
    """The most that the pool and all below it may use now."""
    return tree.limit(pool)
