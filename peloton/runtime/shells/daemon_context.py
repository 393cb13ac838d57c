"""What all shells of one daemon share: the kinds, the region, and the refs of each other.

Filled once by `root.assemble`, read ever after. It must hold no state that changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from peloton.runtime.core import parcels
from peloton.runtime.core.codec import Codec
from peloton.runtime.core.limits import ShardLimits
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.shell import Driver
from peloton.runtime.shells.shell_messages import Ref
from peloton.runtime.vocabulary import Kind

if TYPE_CHECKING:
    from peloton.runtime.shells.region import Region

WAITING_MAIL_MAX = 100_000
"""Envelopes kept while a shard is recovering; what comes beyond is said again by its sender."""
HELD_MAIL_MAX = 10_000
"""Envelopes kept for a machine that acts on the world while our session is in doubt; likewise."""
BATCH_BYTES = 64 * 1024
"""Envelopes for one place elsewhere share a letter up to this size."""


class DaemonLimits(ShardLimits, frozen=True, gc=False, kw_only=True):
    """Limits of a daemon and, first, of each of its shards; simulations make them tiny."""

    waiting_mail_max: int = WAITING_MAIL_MAX
    held_mail_max: int = HELD_MAIL_MAX
    batch_bytes: int = BATCH_BYTES
    parcel_bytes: int = parcels.PARCEL_BYTES
    link_bytes_max: int = parcels.LINK_BYTES_MAX
    window_parcels: int = parcels.WINDOW_PARCELS
    window_bytes: int = parcels.WINDOW_BYTES

    def of_links(self) -> parcels.LinkLimits:
        """Those of a link to another daemon."""
        return parcels.LinkLimits(
            link_bytes_max=self.link_bytes_max,
            window_parcels=self.window_parcels,
            window_bytes=self.window_bytes,
            parcel_bytes=self.parcel_bytes,
        )


class DaemonContext(msgspec.Struct, frozen=True):
    """One daemon, as its shells see it."""

    kinds: Mapping[str, Kind]
    codec: Codec
    sharding: Sharding
    region: Region
    driver: Driver  # of the shards, and of the root
    root: Ref
    journal: Ref
    readers: tuple[Ref, ...]
    store: str  # the server under the journal, by the name that people know
    limits: DaemonLimits = DaemonLimits()

    def reader_of(self, shard: ShardId) -> Ref:
        """Who claims and reads this shard: always the same one, so its words keep their order."""
        return self.readers[shard.number % len(self.readers)]
