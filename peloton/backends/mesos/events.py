"""The parts of an event that a link itself reads: its agents, and when the next one must come.

An event that cannot be read is ignored here: the conversation reports it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from peloton.backends.port import POISON

BEAT_S = 15.0
"""Between two heartbeats, where the master does not say it."""


def agents_of(event: Mapping[str, Any]) -> list[str]:
    """Return the ids of the agents that offers or an update are of, as far as they can be read."""
    found = []
    with contextlib.suppress(*POISON):
        for offer in event.get("offers", {}).get("offers", ()):
            with contextlib.suppress(*POISON):
                found.append(offer["agent_id"]["value"])
        if "update" in event:
            found.append(event["update"]["status"].get("agent_id", {"value": ""})["value"])
    return [each for each in found if each and isinstance(each, str)]


def is_of_an_executor(event: Mapping[str, Any]) -> bool:
    """Return whether a failure is that of an executor, and its agent is there as before."""
    failure = event.get("failure")
    return isinstance(failure, Mapping) and bool(failure.get("executor_id"))


def heartbeat_of(event: Mapping[str, Any]) -> float:
    """Return the interval, in s, at which the master of this subscription sends at least."""
    with contextlib.suppress(*POISON):
        return float(event["subscribed"].get("heartbeat_interval_seconds", BEAT_S))
    return BEAT_S
