"""The two lanes of a pool: one for tasks that wait for room of their own, one for those on slack.

Each lane has its own queue and its own head, so that neither blocks the other. That of tasks with
room of their own has the key of the pool. Names of lanes are never journaled nor sent.
"""

from __future__ import annotations

from peloton.actors.respool.lot.messages import LotShape
from peloton.runtime.vocabulary import Key

_SLACK = "~slack"


def slack_lane(pool: Key) -> Key:
    """Return the lane of a pool for tasks that run on slack."""
    return Key(pool + _SLACK)


def lanes_of(pool: Key) -> tuple[Key, Key]:
    """Return both lanes of a pool; that for slack comes last, for it takes what the other
    leaves."""
    return pool, slack_lane(pool)


def lane_of(shape: LotShape) -> Key:
    """Return the lane in which members of a lot wait."""
    return slack_lane(shape.pool) if shape.on_slack else shape.pool


def is_slack(lane: Key) -> bool:
    return lane.endswith(_SLACK)


def pool_of_lane(lane: Key) -> Key:
    return Key(lane.removesuffix(_SLACK))
