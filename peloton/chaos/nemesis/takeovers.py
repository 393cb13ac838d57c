"""Measures how long a shard is unavailable after its owner is lost.

Turns the loss of a daemon into seconds, one figure for each job shard it owned: from the loss to
the first answer about a job of that shard by any other daemon. During a hand-over the old owner
still answers: there the figure is the longest time without an answer until the shard has another
owner. Figures taken while other faults struck are kept separately.
"""

from __future__ import annotations

import random
import statistics
import threading
import uuid
from collections.abc import Callable
from typing import NamedTuple

from peloton.actors.job.messages import job_key
from peloton.chaos.nemesis.fleet import CLUSTER, SHARDS, DaemonProcess, NemesisFleet
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.adapters.zookeeper_nodes import Paths, owner_of, shard_of
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key
from peloton.sdk.client import Client
from peloton.sdk.errors import ServiceUnavailable

POLL_S = 0.5
ASK_S = 1.0
AGAIN_S = 0.05
GIVE_UP_S = 120.0
HAND_OVER = "hand-over"


def takeover_mark(daemon: DaemonProcess) -> str:
    """Return the part that is in all member names of the daemon's present process."""
    return f"-{daemon.pid}-"


class Takeover(NamedTuple):
    """A shard after one loss."""

    why: str
    shard: ShardId
    seconds: float
    clean: bool  # no other fault struck meanwhile


class Loss(NamedTuple):
    """A lost daemon, and how many actions there had been by then."""

    daemon: DaemonProcess
    mark: str  # in the names of its members
    why: str
    at_s: float
    actions: int
    among_others: bool


class Takeovers:
    """The owners by ZooKeeper, and the takeovers of their shards."""

    def __init__(self, fleet: NemesisFleet, timeline: Timeline, *, sharding: Sharding) -> None:
        self.found: list[Takeover] = []
        self.others: Callable[[], bool] = lambda: False
        """Whether another fault is on right now."""
        self.canaries: dict[ShardId, str] = {}
        self._fleet = fleet
        self._timeline = timeline
        self._sharding = sharding
        self._owners: dict[ShardId, str] = {}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, name="owners", daemon=True)]

    def start(self) -> None:
        self._threads[0].start()

    def stop(self) -> None:
        """Wait for the figures under way."""
        self._over.set()
        for thread in self._threads:
            thread.join(ASK_S + 5)

    def choose(self, chance: random.Random) -> list[str]:
        """Return ids of new jobs, one in each job shard, for the probes."""
        while len(self.canaries) < SHARDS["jobmgr"]:
            job_id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
            self.canaries.setdefault(self._sharding.shard_of(job_key(job_id)), job_id)
        return [*self.canaries.values()]

    @property
    def waiting(self) -> bool:
        """Whether some figure is under way."""
        return any(thread.is_alive() for thread in self._threads[1:])

    @property
    def owned(self) -> int:
        """How many shards have an owner, as far as is known."""
        return sum(1 for owner in self._owners.values() if owner)

    def lost(self, daemon: DaemonProcess, why: str) -> None:
        """Measure from now on until another daemon answers for each of its shards."""
        mark = takeover_mark(daemon)
        loss = Loss(daemon, mark, why, self._timeline.now_s, self._actions, self.others())
        for shard in [s for s in self.canaries if mark in self._owners.get(s, "")]:
            thread = threading.Thread(target=self._measure, args=(shard, loss), daemon=True)
            self._threads.append(thread)
            thread.start()

    def owner_of(self, key: Key) -> DaemonProcess | None:
        """Return the daemon that owns the shard of this key, as far as is known."""
        owner = self._owners.get(self._sharding.shard_of(key), "")
        living = self._fleet.living()
        return next((each for each in living if takeover_mark(each) in owner), None)

    def summary(self) -> str:
        """Return the figures as text."""
        parts = []
        for why in dict.fromkeys(each.why for each in self.found):
            for name, some in (
                ("alone", [e.seconds for e in self.found if e.why == why and e.clean]),
                ("among others", [e.seconds for e in self.found if e.why == why and not e.clean]),
            ):
                if some:
                    middle, worst = statistics.median(some), max(some)
                    figures = f"median {middle:.1f} s, worst {worst:.1f} s of {len(some)}"
                    parts.append(f"{why} {name}: {figures}")
        return "; ".join(parts) or "none measured"

    @property
    def _actions(self) -> int:
        return self._timeline.counts.total()

    def _measure(self, shard: ShardId, loss: Loss) -> None:
        clients: dict[str, Client] = {}
        turn, silence_s, answered_s = 0, 0.0, loss.at_s
        while not self._over.is_set() and self._timeline.now_s < loss.at_s + GIVE_UP_S:
            others = [each for each in self._fleet.living() if each is not loss.daemon]
            turn += 1
            if others:
                address = others[turn % len(others)].address
                if address not in clients:
                    clients[address] = Client(address, timeout_s=ASK_S)
                try:
                    clients[address].jobs.get(self.canaries[shard])
                except ServiceUnavailable:
                    pass  # the shard has no owner yet
                else:
                    now_s = self._timeline.now_s
                    silence_s, answered_s = max(silence_s, now_s - answered_s), now_s
                    if loss.why != HAND_OVER or loss.mark not in self._owners[shard]:
                        self._note(shard, loss, seconds=silence_s)
                        break
            self._over.wait(AGAIN_S)
        else:
            if not self._over.is_set():
                self._timeline.find(f"{shard}: no answer {GIVE_UP_S} s after {loss.why}")
        for client in clients.values():
            client.close()

    def _note(self, shard: ShardId, loss: Loss, *, seconds: float) -> None:
        if loss.why == "pause" and not loss.daemon.frozen:
            return  # it came back before anybody took over
        clean = not loss.among_others and self._actions == loss.actions + 1
        self.found.append(Takeover(loss.why, shard, seconds, clean))
        name = f"{shard.group}-{shard.number}"
        self._timeline.log(f"{name} answers again after {seconds:.2f} s: {loss.why}")

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                owners = self._fleet.outside.owners(Paths(CLUSTER).owners)
            except OSError:
                continue  # ZooKeeper is paused or killed: the last known owners count
            for name, data in owners.items():
                shard = shard_of(name)
                if shard is not None:
                    self._owners[shard] = owner_of(data)
