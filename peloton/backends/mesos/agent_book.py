"""Where the agents of a cluster listen, as the master that leads says.

Keeps what it was told for a while, and asks again for what it does not find. Several threads may
ask. It must not know what is wanted of the agents.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from peloton.backends.mesos.elections import NoLeader, elected
from peloton.backends.mesos.operator_api import (
    SILENCE_S_MAX,
    Credential,
    Elsewhere,
    HttpDoor,
    NoAnswer,
    NotThere,
    OperatorApi,
)
from peloton.settings.mesos_master import ZooKeeperPlace

KNOWN_S = 30.0
"""How long an answer of the master counts."""
MISSED_S = 2.0
"""Between two questions for an agent that was not there."""
ZOOKEEPER_S = 5.0


class AgentBook:
    """The addresses of all agents, by their host names."""

    def __init__(
        self,
        master: str,
        credential: Credential,
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = SILENCE_S_MAX,
        zookeeper_s: float = ZOOKEEPER_S,
    ) -> None:
        """`master`: HOST:PORT, or zk://…"""
        self._timeout_s, self._zookeeper_s = timeout_s, zookeeper_s
        self._master, self._credential, self._clock = master, credential, clock
        self._lock = threading.Lock()
        self._doors: dict[str, HttpDoor] = {}
        self._asked_at = float("-inf")
        self._leader: HttpDoor | None = None

    @property
    def leader(self) -> HttpDoor | None:
        """The master that leads, as far as we know."""
        return self._leader

    def door_of(self, hostname: str) -> HttpDoor | None:
        """Of its agent; None if the master knows none. Raises `NoAnswer`."""
        with self._lock:
            age_s = self._clock() - self._asked_at
            if age_s > KNOWN_S or (hostname not in self._doors and age_s > MISSED_S):
                self._doors = self._asked()
                self._asked_at = self._clock()
            return self._doors.get(hostname)

    def doubt(self) -> None:
        """An agent is not where we thought: ask again before the next look."""
        with self._lock:
            self._asked_at = min(self._asked_at, self._clock() - KNOWN_S)

    def _asked(self) -> dict[str, HttpDoor]:
        door = _leading(self._master, self._zookeeper_s)
        for _ in range(2):
            try:
                found = self._agents(door)
            except Elsewhere as elsewhere:
                if elsewhere.door is None or elsewhere.door == door:
                    raise
                door = elsewhere.door
            else:
                self._leader = door
                return found
        raise NoAnswer(f"{door} does not lead either")

    def _agents(self, door: HttpDoor) -> dict[str, HttpDoor]:
        with contextlib.closing(
            OperatorApi(door, self._credential, timeout_s=self._timeout_s)
        ) as api:
            try:
                answer = api.ask({"type": "GET_AGENTS"})
                listed = answer["get_agents"].get("agents", ())
                # Of several agents on one machine the first is the host.
                return {
                    one["agent_info"]["hostname"]: HttpDoor.of(one["pid"].rpartition("@")[2])
                    for one in reversed(listed)
                }
            except NotThere:
                raise NoAnswer(f"{door} is no master of Mesos") from None
            except (KeyError, TypeError, ValueError, AttributeError):
                raise NoAnswer(f"{door} lists its agents in words that we do not know") from None


def _leading(master: str, timeout_s: float) -> HttpDoor:
    """Whom to ask first."""
    place = ZooKeeperPlace.of(master)
    if place is None:
        return HttpDoor.of(master)
    try:
        return elected(place, timeout_s=timeout_s)
    except NoLeader as error:
        raise NoAnswer(str(error)) from None
