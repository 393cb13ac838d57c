"""The limits of one shard, as a value that its daemon hands in.

Gathers what bounds the queues, frames, checkpoints and caches of a shard, so that a simulation can
make them tiny and reach every edge that a large number hides. The defaults come from the modules
that apply them, which say what each is for. What daemons have to agree on, such as the layout of
stored rows, must not be a limit: limits may differ from daemon to daemon and from start to start.
"""

from __future__ import annotations

import msgspec

from peloton.runtime.core.checkpoint import (
    CHECKPOINT_BYTES_MIN,
    PART_BYTES,
    PIECE_BYTES_MAX,
    Checkpointer,
)
from peloton.runtime.core.deferring.dead_letters import REDRIVEN_PER_FRAME_MAX
from peloton.runtime.core.deferring.mailbox import COMMANDS_MAX
from peloton.runtime.core.ended.endings import ENDED_ROWS_PER_ROUND, EndingBounds
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.passivation import (
    COLD_AFTER_S,
    COLD_CHECK_S,
    COLD_PER_CHECK_MAX,
    Idleness,
)
from peloton.runtime.core.reading.changes import CHANGES_MAX
from peloton.runtime.core.turning.pump import (
    FRAME_BYTES_SOFT,
    LEFT_TURNS_MAX,
    LOCAL_TURNS_MAX,
    OTHERS_TURNS_MAX,
    TURNS_PER_FRAME_MAX,
    Budget,
)
from peloton.runtime.core.turning.story import LINES_MAX


class ShardLimits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The bounds of one shard; bytes, counts and seconds as the names say."""

    checkpoint_bytes_min: int = CHECKPOINT_BYTES_MIN
    part_bytes: int = PART_BYTES
    piece_bytes_max: int = PIECE_BYTES_MAX
    frame_bytes_soft: int = FRAME_BYTES_SOFT
    turns_per_frame_max: int = TURNS_PER_FRAME_MAX
    local_turns_max: int = LOCAL_TURNS_MAX
    left_turns_max: int = LEFT_TURNS_MAX
    others_turns_max: int = OTHERS_TURNS_MAX
    commands_max: int = COMMANDS_MAX
    ended_rows_per_round: int = ENDED_ROWS_PER_ROUND
    ended_rows_gathered: int = 1
    """So many ended entities wait for each other; on a store with buckets `GATHERED_MIN`."""
    redriven_per_frame_max: int = REDRIVEN_PER_FRAME_MAX
    changes_max: int = CHANGES_MAX
    lines_max: int = LINES_MAX
    cold_after_s: float = COLD_AFTER_S
    cold_check_s: float = COLD_CHECK_S
    cold_per_check_max: int = COLD_PER_CHECK_MAX

    def checkpointer(self, codec: Codec) -> Checkpointer:
        return Checkpointer(
            codec,
            self.checkpoint_bytes_min,
            part_bytes=self.part_bytes,
            piece_bytes_max=self.piece_bytes_max,
        )

    def endings(self) -> EndingBounds:
        """Return the bounds of what leaves memory."""
        return EndingBounds(self.ended_rows_per_round, self.ended_rows_gathered)

    def idleness(self) -> Idleness:
        """Return a tracker of idle entities with these limits."""
        return Idleness(
            self.cold_after_s, check_s=self.cold_check_s, per_check_max=self.cold_per_check_max
        )

    def budget(self) -> Budget:
        """Return how much one frame takes."""
        return Budget(
            turns=self.turns_per_frame_max,
            local=self.local_turns_max,
            left=self.left_turns_max,
            others=self.others_turns_max,
            bytes_soft=self.frame_bytes_soft,
        )


DEFAULT_LIMITS = ShardLimits()
"""Those of production."""
