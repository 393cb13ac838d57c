"""What all shells of one daemon share: the kinds, the region, and the refs of each other.

Filled once by `root.assemble`, read ever after. It must hold no state that changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from peloton.runtime.core.checkpoint import CHECKPOINT_BYTES_MIN
from peloton.runtime.core.codec import Codec
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.shells.letters import Ref
from peloton.runtime.shells.shell import Driver
from peloton.runtime.vocabulary import Kind

if TYPE_CHECKING:
    from peloton.runtime.shells.region import Region


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Limits of a daemon; tests and simulations make them small."""

    checkpoint_bytes_min: int = CHECKPOINT_BYTES_MIN


class House(msgspec.Struct, frozen=True):
    """One daemon, as its shells see it."""

    kinds: Mapping[str, Kind]
    codec: Codec
    sharding: Sharding
    region: Region
    driver: Driver  # of the shards, and of the root
    root: Ref
    journal: Ref
    reader: Ref
    limits: Limits = Limits()
