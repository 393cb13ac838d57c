"""Orders whose runs have secrets, which wait until these are read, on a thread of their own.

Turns orders into the same orders with the values that they name. Orders that come for a host while
one of its orders waits are done after it, on that thread: a kill or a list that overtook a launch
would tell of a run that is yet to come. Values are not kept, and the caller's thread does not wait
for the store. An order whose values cannot be read is done without them after a pause, so those of
its host behind it wait for a few seconds at most, and those of other hosts not at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.task.messages import SECRET_NOT_FOUND, SECRETS_UNAVAILABLE, parse_pod
from peloton.backends.keeper.kinds import KILLED
from peloton.backends.keeper.secret_files import RunSecret
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.shells.secret_vault import SecretsUnavailable, SecretUnreadable

PAUSE_S = 2.0
"""Before runs are given back whose secrets cannot be read: they are launched again at once."""
CLOSE_S_MAX = 10.0
NOT_ENABLED = "secrets are not enabled at the daemon of this host"
_LOG = logging.getLogger("peloton.keeper")

ReadSecrets = Callable[[str, Collection[str]], Mapping[str, bytes]]
"""The values of these ids of a job, as many as are there. Raises SecretsUnavailable."""


def no_secrets(job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
    """Raise SecretsUnavailable: a daemon without a key cannot read secrets."""
    raise SecretsUnavailable(NOT_ENABLED)


class RunRefusal(NamedTuple):
    """The end of a run that is not started for want of its secrets, unless it runs."""

    outcome: str
    reason: str
    message: str


class SecretValues:
    """The values that some orders name, by job and id; `trouble` is why there are none."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.of_jobs: dict[str, Mapping[str, bytes]] = {}
        self.unreadable: dict[str, str] = {}
        """Jobs with a value that cannot be opened, and why."""

    def of(self, run: m.StartRun) -> tuple[tuple[RunSecret, ...], RunRefusal | None]:
        """Return the files of a run, or why it cannot be started."""
        refs = run.spec.secrets
        if not refs:
            return (), None
        job = job_of(run.run)
        found = self.of_jobs.get(job)
        if found is None:
            why = self.unreadable.get(job, self.trouble)
            return (), RunRefusal(KILLED, SECRETS_UNAVAILABLE, why)
        for ref in refs:
            if ref.id not in found:
                text = f"secret {ref.id} for {ref.path} is not in the store of secrets"
                return (), RunRefusal(KILLED, SECRET_NOT_FOUND, text)
        return tuple(RunSecret(ref.path, found[ref.id]) for ref in refs), None

    def for_order(self, wanted: Collection[str]) -> SecretValues:
        """Return the values of these jobs alone."""
        found = SecretValues(self.trouble)
        found.of_jobs = {job: self.of_jobs[job] for job in wanted if job in self.of_jobs}
        found.unreadable = {job: self.unreadable[job] for job in wanted if job in self.unreadable}
        return found


NO_VALUES = SecretValues()
Act = Callable[[SecretValues], None]


class _Waiting(NamedTuple):
    host: str
    act: Act
    wanted: Mapping[str, Collection[str]]


class _Ready(NamedTuple):
    """An order with the values that were read for it, and when it may be done."""

    order: _Waiting
    values: SecretValues
    due: float


def job_of(run: str) -> str:
    """Return the job of a run, by its name in the store of secrets."""
    parsed = parse_pod(run)
    return parsed[0].split("/")[1] if parsed is not None else ""


def wanted_of(order: m.StartRuns) -> dict[str, set[str]]:
    """Return the ids of secrets that an order names, by job."""
    found: dict[str, set[str]] = {}
    for run in order.runs:
        for ref in run.spec.secrets:
            found.setdefault(job_of(run.run), set()).add(ref.id)
    return found


class SecretsFirst:
    """The orders of one backend. `failed` is called after an order that raised, which is lost."""

    def __init__(
        self, read: ReadSecrets, *, failed: Callable[[], None], pause_s: float = PAUSE_S
    ) -> None:
        self.read = read
        self._failed = failed
        self._pause_s = pause_s
        self._change = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._ready: dict[str, deque[_Ready]] = {}  # by host; of the thread alone
        self._held: Counter[str] = Counter()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def then(self, host: str, act: Act, *, wanted: Mapping[str, Collection[str]]) -> None:
        """Carry out an order with the values that it names: at once, if nothing is in the way.

        Orders of one host come from one thread.
        """
        if not wanted and not self._held:
            act(NO_VALUES)
            return
        with self._change:
            if wanted or self._held[host]:
                self._held[host] += 1
                self._waiting.append(_Waiting(host, act, wanted))
                self._begin()
                self._change.notify()
                return
        act(NO_VALUES)

    def close(self) -> None:
        """Drop the orders that wait, as if they had been lost."""
        self._closed.set()
        with self._change:
            self._waiting.clear()
            self._change.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S_MAX)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="secrets-first", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._goes_on():  # in a call of its own, which leaves no value in a variable
            pass

    def _goes_on(self) -> bool:
        """Do one round; return whether there is to be another."""
        if not self._await():
            return False
        with self._change:
            batch, self._waiting = [*self._waiting], deque()
        values = self._values(batch)
        now = time.monotonic()
        for one in batch:
            lacking = any(job not in values.of_jobs for job in one.wanted)
            due = now + self._pause_s if lacking else now
            ready = _Ready(one, values.for_order(one.wanted), due)
            self._ready.setdefault(one.host, deque()).append(ready)
        self._act_due(now)
        return True

    def _await(self) -> bool:
        """Wait for an order, or the end of a pause; return whether this is still open."""
        with self._change:
            while not self._waiting and not self._closed.is_set():
                left_s = self._left_s()
                if left_s is not None and left_s <= 0:
                    break
                self._change.wait(left_s)
            return not self._closed.is_set()

    def _left_s(self) -> float | None:
        """Return the time until the first order that pauses is due; None if there is none."""
        due = min((ready[0].due for ready in self._ready.values()), default=None)
        return None if due is None else due - time.monotonic()

    def _act_due(self, now: float) -> None:
        """Carry out each host's orders in sequence: those behind one that pauses wait for it."""
        for host, ready in [*self._ready.items()]:
            while ready and ready[0].due <= now:
                one = ready.popleft()
                self._act(one.order, one.values)
            if not ready:
                del self._ready[host]

    def _values(self, batch: list[_Waiting]) -> SecretValues:
        """Return the values of a batch, read once for each job; a failed store is not
        asked again."""
        wanted: dict[str, set[str]] = {}
        for one in batch:
            for job, ids in one.wanted.items():
                wanted.setdefault(job, set()).update(ids)
        found = SecretValues()
        for job, names in wanted.items():
            done = attempt(self._read, job, names, found=found)
            if isinstance(done, Failure):  # which must not end the thread: hosts wait for it
                found.trouble = f"the store of secrets failed: {done.error.partition(':')[0]}"
                _LOG.error("%s", found.trouble)
            if found.trouble:
                break
        return found

    def _read(self, job: str, names: Collection[str], *, found: SecretValues) -> None:
        try:
            found.of_jobs[job] = self.read(job, names)
        except SecretUnreadable as error:
            found.unreadable[job] = str(error)
        except SecretsUnavailable as error:
            found.trouble = str(error) or type(error).__name__

    def _act(self, one: _Waiting, values: SecretValues) -> None:
        done = attempt(lambda: one.act(values))
        with self._change:
            self._held[one.host] -= 1
            if not self._held[one.host]:
                del self._held[one.host]
        if isinstance(done, Failure):
            # The rest of its text may quote an order, and values are part of it.
            _LOG.error("an order of %s failed: %s", one.host, done.error.partition(":")[0])
            self._failed()
