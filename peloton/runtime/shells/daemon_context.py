"""The context that all shells of one daemon share: the kinds, the region, and each other's refs.

It is filled once by `root.assemble`, then only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.limits import ShardLimits
from peloton.runtime.core.links import parcels
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.shell import Driver
from peloton.runtime.shells.shell_messages import Ref

if TYPE_CHECKING:
    from peloton.runtime.shells.goals import Goals
    from peloton.runtime.shells.region import Region
    from peloton.runtime.shells.round import RoundShell

WAITING_MAIL_MAX = 100_000
"""Envelopes kept while a shard recovers; more are dropped, and their senders repeat them."""
SERVICE_MAIL_MAX = 10_000
"""Envelopes kept for an outward service while our session is in doubt; likewise."""
ROUND_PASSES_MAX = 64
"""How often a round that is open may find others with mail before it is closed all the same."""
BATCH_BYTES = 64 * 1024
"""Envelopes for one remote route share a batch up to this size."""


class DaemonLimits(ShardLimits, frozen=True, gc=False, kw_only=True):
    """The limits of a daemon and of each of its shards; simulations make them tiny."""

    waiting_mail_max: int = WAITING_MAIL_MAX
    service_mail_max: int = SERVICE_MAIL_MAX
    batch_bytes: int = BATCH_BYTES
    round_passes_max: int = ROUND_PASSES_MAX
    parcel_bytes: int = parcels.PARCEL_BYTES
    link_bytes_max: int = parcels.LINK_BYTES_MAX
    window_parcels: int = parcels.WINDOW_PARCELS
    window_bytes: int = parcels.WINDOW_BYTES

    def of_links(self) -> parcels.LinkLimits:
        return parcels.LinkLimits(
            link_bytes_max=self.link_bytes_max,
            window_parcels=self.window_parcels,
            window_bytes=self.window_bytes,
            parcel_bytes=self.parcel_bytes,
        )


class DaemonContext(msgspec.Struct, frozen=True):
    """A daemon as its shells see it; immutable."""

    kinds: Mapping[str, Kind]
    codec: Codec
    sharding: Sharding
    region: Region
    driver: Driver  # of the shards, and of the root
    root: Ref
    journal: Ref
    round: RoundShell
    readers: tuple[Ref, ...]
    goals: Goals
    store: str  # the server under the journal, by the name that people know
    limits: DaemonLimits = DaemonLimits()

    def reader_of(self, shard: ShardId) -> Ref:
        """Return the reader of this shard: always the same one, which keeps the order."""
        return self.readers[shard.number % len(self.readers)]
