"""Carries out the health checks of a machine's runs, on a thread with a loop of its own.

Turns runs with checks into changes of their health, and repeats these, and changes of containers,
until the tasks have noted them. Requests are made here; commands are carried out by the receiver of
`order`, and `answered` brings their outcome. A check whose outcome is unknown changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol

from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.task.run_messages import ContainerEnd, HealthCheck
from peloton.backends.check_progress import CheckProgress, ReadyProgress
from peloton.backends.http_probe import probe
from peloton.backends.run_news import RunNews
from peloton.runtime.vocabulary import Key

PROBES_MAX, COMMANDS_MAX = 64, 32
"""Checks of each kind that are under way at once; others wait."""
ANSWER_SLACK_S = 10.0
"""How much longer than a command may take its outcome is awaited."""
NOT_RUN = "the check could not be carried out"
NO_KEEPER = "no keeper can be asked for it"
_LOG = logging.getLogger("peloton.health")
TellChanges = Callable[[Key, RunsChanged], None]
Outcome = tuple[bool | None, str]


class NeverCheckedError(Exception):
    """The receiver of commands carries out none of this run."""


class CheckOrder(Protocol):
    """Orders a check by command; its outcome comes by `answered`. From any thread."""

    def __call__(self, run: str, number: int, *, check: HealthCheck) -> bool:
        """Order the check; return whether it can be carried out."""


class CheckedRun(NamedTuple):
    """A run whose health or readiness is checked."""

    host: Key
    run: str
    check: HealthCheck
    started_at: float


class HealthLoop:
    """The loop of all checks, which ends with `close`. Its methods are for any thread."""

    def __init__(self, tell: TellChanges, order: CheckOrder) -> None:
        self._tell, self._order = tell, order
        self._news = RunNews()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._awaited: dict[int, asyncio.Future[Outcome]] = {}
        # A keeper outlives us: what an earlier daemon has asked it must not be taken for ours.
        self._numbers = itertools.count(time.time_ns())
        self._probes = asyncio.Semaphore(PROBES_MAX)
        self._commands = asyncio.Semaphore(COMMANDS_MAX)
        self._repeat: asyncio.TimerHandle | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="health-checks", daemon=True)
        self._thread.start()

    def watch(self, watched: CheckedRun) -> None:
        """Check this run until it is dropped; a run that is checked already is left as it is."""
        self._soon(self._begin, watched)

    def moved(self, host: Key, run: str, *, containers: tuple[ContainerEnd, ...]) -> None:
        """Report this state of a run's containers until `drop`; the run need not be checked."""
        self._soon(functools.partial(self._move, host, run, containers=containers))

    def to_end(self, runs: Iterable[str]) -> None:
        """Stop checking these runs, which are to end."""
        self._soon(self._stop, tuple(runs))

    def drop(self, runs: Iterable[str]) -> None:
        """Forget these runs, which have ended."""
        self._soon(self._end, tuple(runs))

    def noted(self, runs: Iterable[str], number: int) -> None:
        """Stop reporting the change of this number: the runs' tasks have noted it."""
        self._soon(self._settle, tuple(runs), number)

    def answered(self, number: int, outcome: Outcome) -> None:
        """Take the outcome of the command of this number."""
        self._soon(self._received, number, outcome)

    def refused(self, number: int, text: str) -> None:
        """Note that the command of this number is not carried out, nor any other of its run."""
        self._soon(self._received, number, NeverCheckedError(text))

    def close(self) -> None:
        """Stop all checks."""
        self._soon(self._loop.stop)
        self._thread.join()

    def _soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run a call on the loop; orders after the close are ignored."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    # On the thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = [*self._tasks.values()]
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def _begin(self, watched: CheckedRun) -> None:
        if watched.run not in self._tasks:
            task = self._tasks[watched.run] = self._loop.create_task(self._check(watched))
            task.add_done_callback(lambda done: self._over(watched, done))

    def _over(self, watched: CheckedRun, done: asyncio.Task[None]) -> None:
        """Restart the checks of a run after an unforeseen error, which is no fault of the run."""
        error = None if done.cancelled() else done.exception()
        if error is not None and self._tasks.pop(watched.run, None) is not None:
            _LOG.error("the health of %s could not be checked", watched.run, exc_info=error)
            self._loop.call_later(watched.check.interval_s, self._begin, watched)

    def _move(self, host: Key, run: str, *, containers: tuple[ContainerEnd, ...]) -> None:
        self._news.moved(host, run, containers=containers, now=time.time())
        self._tell_due()

    def _stop(self, runs: tuple[str, ...]) -> None:
        for run in runs:
            self._news.to_end(run)
            task = self._tasks.pop(run, None)
            if task is not None:
                task.cancel()

    def _end(self, runs: tuple[str, ...]) -> None:
        self._stop(runs)
        for run in runs:
            self._news.drop(run)

    def _settle(self, runs: tuple[str, ...], number: int) -> None:
        self._news.noted(runs, number, now=time.time())
        self._tell_due()

    def _received(self, number: int, outcome: Outcome | NeverCheckedError) -> None:
        awaited = self._awaited.pop(number, None)
        if awaited is None or awaited.done():
            return
        if isinstance(outcome, NeverCheckedError):
            awaited.set_exception(outcome)
        else:
            awaited.set_result(outcome)

    def _tell_due(self) -> None:
        """Report what is due, and schedule the next report."""
        for host, reported in self._news.due(time.time()):
            self._tell(host, reported)
        if self._repeat is not None:
            self._repeat.cancel()
        wake_at = self._news.wake_at
        self._repeat = None
        if wake_at is not None:
            self._repeat = self._loop.call_later(max(wake_at - time.time(), 0.0), self._tell_due)

    async def _check(self, watched: CheckedRun) -> None:
        """Check health and readiness, each at its own times."""
        async with asyncio.TaskGroup() as both:
            if watched.check.of_health:
                health = self._check_health(watched)
                both.create_task(self._if_ever(health, watched, tell=self._news.unchecked))
            if watched.check.readiness is not None:
                ready = self._check_ready(watched)
                both.create_task(self._if_ever(ready, watched, tell=self._news.ungated))

    async def _if_ever(
        self, checking: Awaitable[None], watched: CheckedRun, *, tell: Callable[..., None]
    ) -> None:
        """Report that the run is not checked if its checks are never carried out."""
        try:
            await checking
        except NeverCheckedError as error:
            tell(watched.host, watched.run, text=f"not checked: {error}", now=time.time())
            self._tell_due()

    async def _check_ready(self, watched: CheckedRun) -> None:
        """Check readiness until the run is dropped: no result ends the run."""
        check = watched.check.readiness
        assert check is not None
        watched = watched._replace(check=check)
        progress = ReadyProgress(check.max_failures)

        def judge(ok: bool | None, text: str) -> bool:
            ready, host, run, now = progress.result(ok), watched.host, watched.run, time.time()
            if ready is not None:
                self._news.ready(host, run, ready=ready, text=text, now=now)
            elif ok is None:
                self._news.not_run_ready(host, run, text=f"{NOT_RUN}: {text}", now=now)
            else:
                return False
            self._tell_due()
            return False

        await self._until(watched, judge)

    async def _check_health(self, watched: CheckedRun) -> None:
        progress = CheckProgress(watched.check.max_failures)

        def judge(ok: bool | None, text: str) -> bool:
            verdict, host, run, now = progress.result(ok), watched.host, watched.run, time.time()
            if verdict is not None:
                self._news.change(host, run, verdict=verdict, text=text, now=now)
            elif ok is None:
                self._news.not_run(host, run, text=f"{NOT_RUN}: {text}", now=now)
            else:
                return False
            self._tell_due()
            return verdict is not None and verdict.over

        await self._until(watched, judge)

    async def _until(self, watched: CheckedRun, judge: Callable[[bool | None, str], bool]) -> None:
        """Check at its times until `judge` returns True for an outcome."""
        await asyncio.sleep(first_after_s(watched, time.time()))
        while not judge(*await self._outcome(watched)):
            await asyncio.sleep(watched.check.interval_s)

    async def _outcome(self, watched: CheckedRun) -> Outcome:
        check = watched.check
        if check.http is not None:
            async with self._probes:
                return await probe(check.http, check.timeout_s)
        async with self._commands:
            return await self._by_command(watched)

    async def _by_command(self, watched: CheckedRun) -> Outcome:
        """Check by command. Without an answer nothing is known: the receiver may be away."""
        number = next(self._numbers)
        awaited = self._awaited[number] = self._loop.create_future()
        try:
            if not self._order(watched.run, number, check=watched.check):
                return None, NO_KEEPER
            within_s = watched.check.timeout_s + ANSWER_SLACK_S
            async with asyncio.timeout(within_s):
                outcome: Outcome = await awaited
                return outcome
        except TimeoutError:
            return None, f"the keeper has not answered in {within_s:g} s"
        finally:
            self._awaited.pop(number, None)


def first_after_s(watched: CheckedRun, now: float) -> float:
    """Return the delay of the first check, in s.

    After a restart most are due at once: they are spread by their names, so that a machine's checks
    do not all begin together.
    """
    check = watched.check
    left_s = watched.started_at + check.initial_s - now
    if left_s >= 0:
        return min(left_s, check.initial_s)
    return check.interval_s * (zlib.crc32(watched.run.encode()) % 1000) / 1000
