"""Locks for programs: wait for one, keep it, and learn at once when it is lost.

    with hold(client, "reports", ttl_s=30) as lease:
        write(report, token=lease.token)
        lease.check()

The lease is renewed by a thread of its own at a third of its time. It counts as lost when that was
refused, or when its time is over without a renewal, counted from before the request was sent: never
later than the cluster gives the lock to somebody else.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from lease_lock.kind import Acquire, Lease, Lock, Release, Released, Renew
from peloton.sdk.actors import ActorCalls, ActorRefused
from peloton.sdk.calls import Blocking
from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError, ServiceUnavailable, TryLater

RENEWALS = 3
"""So many tries to renew fit into one lease."""
PAUSE_S = 0.5
"""Between two tries while the cluster does not answer."""
SILENCE_S_MAX = 60.0
"""For so long a cluster that does not answer is asked for the lock."""
_LOG = logging.getLogger(__name__)


def _now_s() -> float:
    """Return the time since the machine was started; the cluster's clock does not stop while this
    machine is suspended, so this one must not either."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseLost(Exception):
    """The lock may be held by somebody else."""


class Hold:
    """A lock that is held; safe to use from several threads.

    `token` is higher than that of all holders before: pass it to what the lock guards, which then
    refuses a lower one. `lost` is set as soon as the lock may be held by somebody else.
    """

    def __init__(
        self, locks: ActorCalls[Blocking], name: str, lease: Lease, *, until_s: float
    ) -> None:
        self.name, self.token, self.lost = name, lease.token, threading.Event()
        self._locks, self._ttl_s = locks, lease.ttl_s
        self._until_s, self._over = until_s, threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=each, name=f"{each.__name__} {name}", daemon=True)
            for each in (self._renew, self._expire)
        ]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise LeaseLost if the lock may be held by somebody else."""
        if self.lost.is_set() or _now_s() >= self._until_s:
            raise LeaseLost(f"the lock {self.name} is no longer held under token {self.token}")

    def release(self) -> None:
        """Give the lock up; of one that was lost that changes nothing."""
        with self._over:
            self._ended = True
            self._over.notify_all()
        try:
            self._locks.tell(self.name, Release(self.token), into=Released)
        except PelotonError as error:
            text = "the lock %s was not released and ends by itself within %g s: %s"
            _LOG.warning(text, self.name, self._ttl_s, error)

    def _lose(self) -> None:
        with self._over:
            self._ended = True
            self._over.notify_all()
        self.lost.set()

    def _renew(self) -> None:
        """Begin the lease again and again, until it is over."""
        pause_s = self._ttl_s / RENEWALS
        while not self._waits(pause_s):
            sent_s = _now_s()
            try:
                lease = self._locks.tell(self.name, Renew(self.token), into=Lease)
            except ActorRefused:
                self._lose()
                return
            except PelotonError as error:
                _LOG.warning("the lock %s is not renewed yet: %s", self.name, error)
                pause_s = min(PAUSE_S, self._ttl_s / RENEWALS)
                continue
            pause_s = lease.ttl_s / RENEWALS
            with self._over:
                self._until_s = max(self._until_s, sent_s + lease.ttl_s)

    def _expire(self) -> None:
        """Tell the loss when the time is over, even while a renewal waits for its answer."""
        while (left_s := self._until_s - _now_s()) > 0:
            if self._waits(left_s):
                return
        self._lose()

    def _waits(self, seconds: float) -> bool:
        """Wait so long; return whether the lease has ended."""
        with self._over:
            return self._over.wait_for(lambda: self._ended, seconds)


@contextmanager
def hold(
    client: Client,
    name: str,
    *,
    ttl_s: float = 30.0,
    holder: str = "",
    timeout_s: float | None = None,
) -> Iterator[Hold]:
    """Wait for a lock, keep it, and release it at the end.

    `holder` names this taker and no other; empty: a new name. Who waits is told by the cluster when
    the lock becomes free; whoever asks first then gets it. Raises TimeoutError after `timeout_s`,
    ActorRefused for a bad `ttl_s`, and what the cluster raises if it does not answer for
    SILENCE_S_MAX.
    """
    holder = holder or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    held = _acquired(client.actors("lock"), name, Acquire(holder, ttl_s), timeout_s=timeout_s)
    try:
        yield held
    finally:
        held.release()


def _acquired(
    locks: ActorCalls[Blocking], name: str, message: Acquire, *, timeout_s: float | None
) -> Hold:
    """Return the lock once it is held."""
    begun_s = answered_s = _now_s()
    freed: _Freed | None = None
    try:
        while True:
            sent_s = _now_s()
            left_s = None if timeout_s is None else begun_s + timeout_s - sent_s
            try:
                lease = locks.tell(name, message, into=Lease)
                return Hold(locks, name, lease, until_s=sent_s + lease.ttl_s)
            except ActorRefused as refused:
                if not refused.again:
                    raise
                answered_s = _now_s()
                reason: PelotonError = refused
            except (ServiceUnavailable, TryLater) as error:
                # It may have been taken: the same holder gets the same token again.
                if sent_s - answered_s > SILENCE_S_MAX:
                    raise
                reason = error
            if left_s is not None and left_s <= 0:
                raise TimeoutError(f"the lock {name}: {reason}") from reason
            if not isinstance(reason, ActorRefused):
                time.sleep(PAUSE_S)
                continue
            freed = freed or _Freed(locks, name)
            freed.wait(left_s)
    finally:
        if freed is not None:
            freed.ended = True


class _Freed:
    """The moments at which a lock is free, as the cluster tells them.

    Its thread ends with the first change after `ended`, or with the client.
    """

    def __init__(self, locks: ActorCalls[Blocking], name: str) -> None:
        self.ended = False
        self._told: queue.SimpleQueue[PelotonError | None] = queue.SimpleQueue()
        self._locks, self._name = locks, name
        threading.Thread(target=self._watch, name=f"waits for {name}", daemon=True).start()

    def wait(self, seconds: float | None) -> None:
        """Wait until the lock is free, or for so long. Raises what ended the watch."""
        try:
            trouble = self._told.get(timeout=seconds)
        except queue.Empty:
            return
        if trouble is not None:
            raise trouble

    def _watch(self) -> None:
        try:
            for lock in self._locks.watch(self._name, into=Lock):
                if self.ended:
                    return
                if lock is None or not lock.holder:
                    self._told.put(None)
        except PelotonError as error:
            self._told.put(error)
