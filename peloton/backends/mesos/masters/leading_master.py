"""The master that leads a cluster, wherever that is now.

With a fixed address it is that master, or the one that it names; else it is looked for in
ZooKeeper. A master that does not answer may have died a moment ago: then the others that stand for
election are asked, which may know better.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from peloton.backends.mesos.masters.elections import NoLeader, candidates
from peloton.backends.mesos.masters.operator_api import (
    SILENCE_S_MAX,
    Credential,
    Elsewhere,
    HttpDoor,
    NoAnswer,
    NotAllowed,
    NotThere,
    OperatorApi,
)
from peloton.settings.mesos_master import ZooKeeperPath

ASKED_MAX = 3
"""How many that stand for election are asked before we give up: each may be silent for a while."""


class MasterAsked(NamedTuple):
    """The connection to the leading master, which the caller has to close, and its answer."""

    api: OperatorApi
    answer: Any


class LeadingMaster:
    """The leading master of one cluster. Any number of threads may ask."""

    def __init__(
        self,
        masters: str,
        credential: Credential,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float | None = None,
        zookeeper_s: float = SILENCE_S_MAX,
    ) -> None:
        """Set up. `masters`: HOST:PORT, or zk://… `tls`: for all masters and agents."""
        self.tls = tls
        self._masters, self._credential = masters, credential
        self._timeout_s = SILENCE_S_MAX if timeout_s is None else timeout_s
        self._zookeeper_s = zookeeper_s

    def connect(self, call: Mapping[str, Any]) -> MasterAsked:
        """Find the leader, and send it this call. Raises `NotAllowed`, `NoAnswer`."""
        tried: set[tuple[str, int]] = set()
        first: NoAnswer | None = None
        for door in self._doors():
            if door[:2] in tried:
                continue
            try:
                return self._follow(door, call, tried=tried)
            except NotAllowed:
                raise
            except NoAnswer as error:
                first = first or error
        raise first or NoAnswer("no master is known")

    def _doors(self) -> Iterator[HttpDoor]:
        """Yield the masters to ask, one after another."""
        place = ZooKeeperPath.of(self._masters)
        if place is None:
            yield HttpDoor.of(self._masters)
            return
        try:
            yield from candidates(place, timeout_s=self._zookeeper_s)[:ASKED_MAX]
        except NoLeader as error:
            raise NoAnswer(str(error)) from None

    def _follow(
        self, door: HttpDoor, call: Mapping[str, Any], *, tried: set[tuple[str, int]]
    ) -> MasterAsked:
        try:
            return self._ask(door, call, tried=tried)
        except Elsewhere as elsewhere:
            if elsewhere.door is None or elsewhere.door[:2] in tried:
                raise
            named = elsewhere.door
        try:
            return self._ask(named, call, tried=tried)
        except Elsewhere:
            raise NoAnswer(f"{named} does not lead either") from None

    def _ask(
        self, door: HttpDoor, call: Mapping[str, Any], *, tried: set[tuple[str, int]]
    ) -> MasterAsked:
        tried |= {(door.host, door.port), (door.name, door.port)}
        api = OperatorApi(door, self._credential, tls=self.tls, timeout_s=self._timeout_s)
        try:
            return MasterAsked(api, api.ask(call))
        except NotThere:
            api.close()
            raise NoAnswer(f"{door} is no master of Mesos") from None
        except BaseException:
            api.close()
            raise
