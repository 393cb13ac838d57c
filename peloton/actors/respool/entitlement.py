"""What a pool is entitled to use.

Turns the tree into an upper bound per pool. For now that is the pool's limit: resources are not
yet shared by reservation and demand. Admission must not use limits directly, so that sharing can
be added here alone.
"""

from __future__ import annotations

from typing import Protocol

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Key


class PoolTree(Protocol):
    """What this module needs of the tree."""

    def limit(self, pool: Key) -> Resources:
        """The most a pool may ever use."""


def entitlement(pools: PoolTree, pool: Key) -> Resources:
    """The most that the pool and all pools below it may use now."""
    return pools.limit(pool)
