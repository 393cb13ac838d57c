"""What a pool is entitled to use.

Turns the tree into an upper bound per pool. For now that is the pool's limit and nothing else: no
sharing by reservation and demand takes place yet, and admission asks only here, so that the
sharing can come without a change there.
"""

from __future__ import annotations

from typing import Protocol

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Key


class PoolTree(Protocol):
    """What is asked of the tree."""

    def limit(self, pool: Key) -> Resources:
        """The most a pool may ever use."""


def entitlement(pools: PoolTree, pool: Key) -> Resources:
    """The most that the pool and all below it may use now."""
    return pools.limit(pool)
