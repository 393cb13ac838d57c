"""The addresses of a cluster's agents, as the leading master reports them.

Keeps addresses for a while, and asks again for those that it does not find. Several threads may
ask: one of them asks the master, and the others wait for its answer, unless an address that is not
too old is known.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable

from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import HttpDoor, NoAnswer
from peloton.backends.port import POISON

KNOWN_S = 30.0
"""How long an answer of the master counts."""
OLD_S = 2 * KNOWN_S
"""How long it counts while the master is asked anew, or has just not answered."""
MISSED_S = 2.0
"""Between two questions for an agent that was not there, or of a master that was not."""


class AgentBook:
    """The addresses of all agents, by their host names."""

    def __init__(
        self, master: LeadingMaster, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._master, self._clock = master, clock
        self._news = threading.Condition()
        self._asking = False
        self._doors: dict[str, tuple[HttpDoor, ...]] = {}
        self._asked_at = float("-inf")
        self._failure = ""
        self._failed_at = float("-inf")
        self._doubted: dict[str, float] = {}
        """When agents were not where we thought; `_void`: since when nobody was asked."""
        self._void: set[str] = set()
        self._leader: HttpDoor | None = None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for agents, which is that for the master; None: no TLS."""
        return self._master.tls

    @property
    def leader(self) -> HttpDoor | None:
        """The leading master, as far as it is known."""
        return self._leader

    def door_of(self, hostname: str) -> HttpDoor | None:
        """Return the address of a host's first agent; None if the master knows none.

        Raises `NoAnswer`.
        """
        return next(iter(self.doors_of(hostname)), None)

    def doors_of(self, hostname: str) -> tuple[HttpDoor, ...]:
        """Return the addresses of all agents on this machine. Raises `NoAnswer`."""
        with self._news:
            while not self._knows(hostname):
                if self._has_failed:
                    raise NoAnswer(self._failure)
                if not self._asking:
                    break
                self._news.wait()
            else:
                return self._doors.get(hostname, ())
            self._asking, void = True, self._void.copy()
        try:
            found = self._asked()
        except NoAnswer as error:
            return self._failed(hostname, error)
        except BaseException:
            self._over()
            raise
        with self._news:
            self._doors, self._asked_at, self._failure = found, self._clock(), ""
            self._void -= void
            self._over()
        return found.get(hostname, ())

    def doubt(self, hostname: str) -> None:
        """Doubt the address of this agent: ask again before it is used next."""
        with self._news:
            now = self._clock()
            self._doubted = {one: at for one, at in self._doubted.items() if now - at < MISSED_S}
            if hostname not in self._doubted:
                self._doubted[hostname] = now
                self._void.add(hostname)

    @property
    def _has_failed(self) -> bool:
        return bool(self._failure) and self._clock() - self._failed_at < MISSED_S

    def _knows(self, hostname: str) -> bool:
        """Return whether the known address is an answer."""
        age_s = self._clock() - self._asked_at
        if hostname in self._void:
            return False
        if hostname not in self._doors:
            return age_s <= MISSED_S
        return age_s <= (OLD_S if self._asking or self._has_failed else KNOWN_S)

    def _failed(self, hostname: str, error: NoAnswer) -> tuple[HttpDoor, ...]:
        """Return the known addresses, which serve for a while; else raise the error."""
        with self._news:
            self._failure, self._failed_at = str(error), self._clock()
            self._over()
            if not self._knows(hostname):
                raise error
            return self._doors.get(hostname, ())

    def _over(self) -> None:
        with self._news:
            self._asking = False
            self._news.notify_all()

    def _asked(self) -> dict[str, tuple[HttpDoor, ...]]:
        api, answer = self._master.connect({"type": "GET_AGENTS"})
        api.close()
        found: dict[str, tuple[HttpDoor, ...]] = {}
        try:
            listed = [*answer["get_agents"].get("agents", ())]
        except POISON:
            listed = [None]
        for one in listed:
            with contextlib.suppress(*POISON):  # it keeps no other away
                name = one["agent_info"]["hostname"]
                found[name] = (*found.get(name, ()), HttpDoor.of_agent(one))
        if listed and not found:
            raise NoAnswer(f"{api.door} lists its agents in words that we do not know")
        self._leader = api.door
        return found
