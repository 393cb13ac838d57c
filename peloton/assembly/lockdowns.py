"""The cluster's lockdown in one daemon: a follower, and a gate before its backend.

The follower reads the locks at the start and after each change, which the change feed brings at
once; nothing polls. The gate drops orders to start or to end runs while these are locked, as if
they had been lost on their way: once they are not locked any more, each host that gave one is asked
to compare, and gives it again. Until the locks are known both are locked. Nor do our shards pursue
goals before it is known that the engine is not locked.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from peloton.actors.host.messages import BackendUp, StartRuns, StopRuns
from peloton.actors.lockdown.messages import (
    ENGINE,
    KILL,
    LAUNCH,
    LOCKDOWN,
    GetLocks,
    Locks,
)
from peloton.backends.port import Backend
from peloton.gateway.access.lockdowns import lock_text
from peloton.pauses import Pauses
from peloton.placement.messages import LaunchesStopped
from peloton.runtime.core.reading.followers import name_of
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.shells.goals import Goals
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key, Unavailable, kind_of

RETRY = Pauses(0.05, 1.0)
GATED: tuple[tuple[str, type], ...] = ((LAUNCH, StartRuns), (KILL, StopRuns))
"""Which orders to backends a component is made of."""
NOTHING = Locks()


class LockFollower:
    """Follows the locks, from `start` until `stop`."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._known: Locks | None = None
        self._tells: list[Callable[[Locks], object]] = []
        self._news = threading.Condition()
        self._woken, self._leaving = threading.Event(), False

    @property
    def now(self) -> Locks:
        """What is locked; nothing, as long as that is not known."""
        return self._known or NOTHING

    def on_change(self, tell: Callable[[Locks], object]) -> None:
        """Call this, on a thread of ours, with the locks, first once they are known."""
        self._tells.append(tell)

    def start(self) -> None:
        threading.Thread(target=self._run, name="lockdown", daemon=True).start()

    def stop(self) -> None:
        """Stop following; the last locks stay."""
        self._leaving = True
        self._woken.set()

    def reached(self, version: int, *, within_s: float) -> bool:
        """Wait until this version is obeyed here; return whether it is."""
        with self._news:
            return self._news.wait_for(lambda: self.now.version >= version, within_s)

    # ---- the thread ----

    def _run(self) -> None:
        shard = self._region.shard_of(LOCKDOWN)
        query = FollowChanges(names=(name_of(LOCKDOWN),), kinds=(kind_of(LOCKDOWN),))
        page = self._answer(lambda: self._region.follow(shard, query))
        while not self._leaving:
            # After the mark, so that no change is between both.
            found = self._answer(lambda: self._region.ask(LOCKDOWN, GetLocks()))
            if not self._leaving:
                self._publish(found if isinstance(found, Locks) else NOTHING)
            if not isinstance(page, ChangesPage):
                return
            behind = functools.partial(self._region.follow, shard, query.behind(page.mark))
            page = self._answer(behind)

    def _answer(self, ask: Callable[[], Future[Any]]) -> Any:
        """Return the answer, however often it has to be asked for; None once we leave."""
        failures = 0
        while not self._leaving:
            self._woken.clear()
            future = ask()
            future.add_done_callback(lambda done: self._woken.set())
            while not self._leaving and not future.done():
                self._woken.wait()
                self._woken.clear()
            if self._leaving:
                break
            if not isinstance(future.result(), Unavailable):
                return future.result()
            self._woken.clear()  # the answer has set it, too
            if not self._leaving:
                failures += 1
                self._woken.wait(RETRY.after(failures))
        return None

    def _publish(self, found: Locks) -> None:
        if found == self._known:
            return
        for tell in self._tells:
            tell(found)
        with self._news:
            self._known = found
            self._news.notify_all()


class GatedBackend:
    """A backend as a service, behind the gate; it starts and ends runs only while it may."""

    def __init__(self, backend: Backend, tell: Callable[[Iterable[Envelope]], object]) -> None:
        self._backend, self._tell = backend, tell
        self._lock = threading.Lock()
        self._stopped = tuple(order for _, order in GATED)
        self._dropped: dict[type, dict[Key, None]] = {order: {} for order in self._stopped}

    @property
    def own_thread(self) -> bool:
        """The backend's value."""
        return self._backend.own_thread

    @property
    def wake_at(self) -> float | None:
        """The backend's value."""
        return self._backend.wake_at

    def reset(self) -> None:
        self._backend.reset()

    def rename(self, member: str, *, number: int, count: int) -> None:
        self._backend.rename(member, number=number, count=count)

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope | Reply]:
        """Pass on the orders that may pass."""
        return self._backend.receive(self._allowed(envelopes), now)

    def obey(self, locks: Locks) -> None:
        """Obey these locks from now on."""
        with self._lock:
            self._stopped = tuple(order for name, order in GATED if locks.of(name) is not None)
            hosts: dict[Key, None] = {}
            for order, dropped in self._dropped.items():
                if order not in self._stopped:
                    hosts.update(dropped)
                    dropped.clear()
        if hosts:
            up, key = BackendUp(), self._backend.key
            self._tell([Envelope(host, up, sender=key) for host in hosts])

    def _allowed(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        if not self._stopped:
            return [*envelopes]
        passed = []
        with self._lock:
            for envelope in envelopes:
                order = envelope.message
                if isinstance(order, StartRuns | StopRuns) and isinstance(order, self._stopped):
                    self._dropped[type(order)][order.host] = None
                else:
                    passed.append(envelope)
        return passed


def rest_goals(goals: Goals) -> Callable[[Locks], object]:
    """Return the callback by which shards pursue goals; they rest until locks are known."""
    goals.rest()

    def obey(locks: Locks) -> None:
        if locks.of(ENGINE) is None:
            goals.go_on()
        else:
            goals.rest()

    return obey


def stop_placer(tell: Callable[[Iterable[Envelope]], object], placer: Callable[[], Key]) -> Any:
    """Return the callback that tells the daemon's placer whether it may propose hosts."""

    def obey(locks: Locks) -> None:
        lock = locks.of(ENGINE) or locks.of(LAUNCH)
        text = "" if lock is None else lock_text(lock)
        tell([Envelope(placer(), LaunchesStopped(text))])

    return obey
