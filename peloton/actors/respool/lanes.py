"""The two lanes of a pool: one for tasks that wait for room of their own, one for those on slack.

Turns a pool into the name of each lane, and back. Each lane has its own queue and its own head, so
that neither blocks the other. That of tasks with room of their own has the key of the pool. Such
names are never journaled nor sent. Must not know who waits.
"""

from __future__ import annotations

from peloton.actors.respool.lot.messages import LotShape
from peloton.runtime.vocabulary import Key

_SLACK = "~slack"


def slack_lane(pool: Key) -> Key:
    """The lane of a pool for tasks that run on slack."""
    return Key(pool + _SLACK)


def lanes_of(pool: Key) -> tuple[Key, Key]:
    """Both lanes of a pool; that for slack comes last, for it takes what the other leaves."""
    return pool, slack_lane(pool)


def lane_of(shape: LotShape) -> Key:
    """The lane in which members of a lot wait."""
    return slack_lane(shape.pool) if shape.on_slack else shape.pool


def is_slack(lane: Key) -> bool:
    """Whether a lane is one for slack."""
    return lane.endswith(_SLACK)


def pool_of_lane(lane: Key) -> Key:
    """The pool of a lane."""
    return Key(lane.removesuffix(_SLACK))
