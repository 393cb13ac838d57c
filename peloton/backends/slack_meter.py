"""The slack of each host, from its runs' grants and their use.

Turns amounts of cpu, measured every few seconds, into the slack to report: the cpu that runs not on
slack hold and do not use, less a share that is kept for safety. A rise of use counts at once, a
fall only bit by bit, and a small change is not reported, so that a load that goes up and down is no
storm of messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from peloton.actors.resources import UNIT

SAFETY_SHARE = 0.2
"""Of what is not used, so much is given to nobody."""
FALLS_WITHIN_S = 30.0
"""Use that has fallen is believed by two thirds after so long."""
STEP = UNIT // 10
"""Slack is told in whole steps."""
RISE_STEPS = 3
"""It is told that there is more once it is more by so many steps; that there is less at once."""
AGAIN_S = 30.0
"""What was told so long ago is told again: a host whose shard was moving has dropped it."""


class HostLoad(NamedTuple):
    """The cpu of the runs of one host that are not on slack: requested, and used."""

    requested: float
    used: float


class SlackMeter:
    """The measured and reported slack of each host."""

    def __init__(self, safety_share: float = SAFETY_SHARE) -> None:
        self._part = 1.0 - safety_share
        self._used: dict[str, float] = {}
        self._at: float | None = None
        self.told: dict[str, int] = {}  # by host: the slack that was reported last
        self._told_at: dict[str, float] = {}

    def measured(self, loads: Mapping[str, HostLoad], now: float) -> dict[str, int]:
        """Return the hosts' slack to report, in millionths of a cpu."""
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        kept = math.exp(-max(0.0, passed) / FALLS_WITHIN_S)
        found: dict[str, int] = {}
        for host, load in loads.items():
            before = self._used.get(host, load.used)
            used = max(load.used, load.used + (before - load.used) * kept)
            self._used[host] = used
            slack = int(max(0.0, load.requested - used) * self._part * UNIT) // STEP * STEP
            told = self.told.get(host)
            if told is None or slack < told or slack >= told + RISE_STEPS * STEP:
                self.told[host] = slack
            elif now - self._told_at[host] < AGAIN_S:
                continue
            found[host], self._told_at[host] = self.told[host], now
        for host in [name for name in self._used if name not in loads]:
            del self._used[host], self.told[host], self._told_at[host]
        return found
