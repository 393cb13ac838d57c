"""Hosts of a Mesos cluster without a daemon: orders go to the backend, and its reports are kept.

Does what hosts, and the actor of the backend, would say to it, and no more: a run that is ordered
stays ordered until it ends, and each end is acknowledged at once.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from peloton.actors.engine.messages import (
    AskSubscription,
    BackendHere,
    BackendOpen,
    OpenBackend,
    Subscribe,
)
from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangesNoted, RunChange, RunsChanged
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.run_messages import TaskHealth
from peloton.backends.mesos.backend import MesosBackend
from peloton.backends.mesos.framework import Framework
from peloton.backends.mesos.runs.keeper_tasks import KeeperProgram, default_command
from peloton.backends.secrets_first import ReadSecrets, no_secrets
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key, Message

WAIT_S = 90.0
ACCOUNT = "root"


def framework(
    master: str, *, keeper: bool = True, idle_s: float = 60.0, command: str = ""
) -> Framework:
    """A new one, whose batch tasks run by the keeper or by an executor of Mesos each."""
    program = KeeperProgram(command or default_command(), ACCOUNT, idle_s) if keeper else None
    id_ = f"test-{uuid.uuid4()}"
    return Framework("east", master, id_, user=ACCOUNT, keeper=program)


def order(value: str, *, cpus: float = 0.1, memory_mb: int = 32, **spec: Any) -> m.StartRun:
    """One run of a new job."""
    need = Resources(int(cpus * UNIT), memory_mb * UNIT)
    return m.StartRun(f"{uuid.uuid4()}-0-1", RunSpec(need, value, **spec))


class MesosHosts:
    """The hosts of one framework, until the end of the context."""

    def __init__(self, known: Framework, *, read: ReadSecrets = no_secrets) -> None:
        self.known = known
        self.capacity: dict[Key, Resources] = {}
        self.started: dict[str, float] = {}
        self.ends: dict[str, m.RunEnd] = {}
        self.end_counts: Counter[str] = Counter()
        self.launched: dict[str, float] = {}
        self.changes: list[RunChange] = []
        self.problems: dict[str, str] = {}
        self._backend = MesosBackend(known)
        self._backend.secrets.read = read
        self._link = self._backend.prefix
        self._mail: queue.SimpleQueue[Envelope | None] = queue.SimpleQueue()
        self._orders: dict[str, tuple[Key, m.StartRun]] = {}
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._backend.start(self._post, self._told_problem)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._backend.close()
        self._mail.put(None)
        self._thread.join()

    @property
    def problem(self) -> str:
        """What the backend says of itself; empty if all is well."""
        return "; ".join(text for text in self.problems.values() if text)

    # ---- what a test says ----

    def start(self, host: Key, *runs: m.StartRun) -> list[str]:
        """Order these; their names."""
        now = time.monotonic()
        with self._changed:
            self._orders |= {run.run: (host, run) for run in runs}
            self.launched |= {run.run: now for run in runs}
        self._send(host, m.StartRuns(host, 1, runs))
        return [run.run for run in runs]

    def stop(self, host: Key, *runs: str, grace_s: float) -> None:
        """End these."""
        self._send(host, m.StopRuns(host, 1, runs, grace_s))

    def host(self, number: int = 1) -> Key:
        """The host that is agent `number`, once it has appeared."""
        found = Key(f"host/east.h{number}")
        self.wait(lambda: found in self.capacity)
        return found

    def wait(self, fact: Callable[[], object]) -> None:
        """Return when this is so."""
        with self._changed:
            if not self._changed.wait_for(fact, timeout=WAIT_S):
                raise TimeoutError(f"not within {WAIT_S:g} s; the backend says: {self.problem!r}")

    def wait_started(self, runs: Iterable[str]) -> None:
        """All of these run, or have run."""
        names = [*runs]
        self.wait(lambda: all(name in self.started or name in self.ends for name in names))

    def wait_ended(self, runs: Iterable[str]) -> list[m.RunEnd]:
        """How they ended, in order."""
        names = [*runs]
        self.wait(lambda: all(name in self.ends for name in names))
        return [self.ends[name] for name in names]

    def wait_ready(self, run: str, *ready: bool) -> None:
        """What was told of its readiness is this, change by change."""
        expected = [TaskHealth.HEALTHY if one else TaskHealth.UNHEALTHY for one in ready]
        self.wait(lambda: [one.ready for one in self.changes if one.run == run] == expected)

    # ---- what hosts say ----

    def _send(self, to: Key, message: Message) -> None:
        for out in self._backend.receive([Envelope(self._link, message, sender=to)], 0.0):
            if isinstance(out, Envelope):
                self._mail.put(out)

    def _post(self, envelopes: Iterable[Envelope]) -> None:
        for each in envelopes:
            self._mail.put(each)

    def _told_problem(self, component: str, problem: str) -> None:
        with self._changed:
            self.problems[component] = problem
            self._changed.notify_all()

    def _work(self) -> None:
        while (mail := self._mail.get()) is not None:
            message: Any = mail.message
            if isinstance(message, OpenBackend):
                assert mail.reply_to is not None
                mail.reply_to.set_result(BackendOpen())
                self._send(self._backend.key, BackendHere())
            elif isinstance(message, AskSubscription):
                self._send(self._backend.key, Subscribe(next(self._numbers)))
            else:
                self._hear(mail.to, message)
                with self._changed:
                    self._changed.notify_all()

    def _hear(self, host: Key, message: Any) -> None:
        now = time.monotonic()
        if isinstance(message, m.HostAppeared):
            self.capacity[host] = message.capacity
            self._send(host, m.PingBackend(host))
        elif isinstance(message, m.BackendUp):
            again = [run for at, run in self._orders.values() if at == host]
            if again:
                self._send(host, m.StartRuns(host, 1, tuple(again)))
        elif isinstance(message, m.RunsStarted):
            for name in message.runs:
                self.started.setdefault(name, now)
        elif isinstance(message, RunsChanged):
            for change in message.runs:
                if change not in self.changes:
                    self.changes.append(change)
                self._send(host, ChangesNoted(host, (change.run,), change.number))
        elif isinstance(message, m.RunsEnded):
            for end in message.ends:
                self._orders.pop(end.run, None)
                self.end_counts[end.run] += 1
                self.ends.setdefault(end.run, end)
            self._send(host, m.ForgetRuns(host, tuple(end.run for end in message.ends)))
