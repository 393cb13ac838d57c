"""The executor at work: the processes of its tasks, its agent, and times, on one thread.

What a keeper's loop does for runs is done here (`keeper/service.py`); requests come from the agent
instead of a daemon. It has no journal: the guardian ends the tasks of a killed executor. Only the
selector may wait, and a connection to the agent beside it.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from peloton.backends.keeper import processes, watch
from peloton.backends.keeper.disk import Disk
from peloton.backends.keeper.journal import KeeperJournal
from peloton.backends.keeper.kept import STANDARD_RULES
from peloton.backends.keeper.kinds import Memory
from peloton.backends.keeper.limits import Limits
from peloton.backends.keeper.runs import Runs
from peloton.backends.keeper.sandboxes import SandboxFolders
from peloton.backends.keeper.secret_files import SecretFiles
from peloton.backends.keeper.wakeups import read_alarm, wake_on_signals

from .agent_environment import AgentEnvironment
from .agent_link import AgentGone, AgentLink, AgentRefuses, NotTaken
from .secret_folders import SecretFolders, sweep
from .talk import HOST, ExecutorConfig, ExecutorTalk

ROUND_S = 1.0
LAST_WORDS_S = 1.0
"""How long an executor that ends waits for the acknowledgement of what it has said last."""
PAUSE_S, PAUSE_MAX_S = 0.2, 1.6
LASTED_S = 5.0
"""A connection that lasted so long was a success, whatever became of it."""
_NO_END = ("a", "run")


class UnsyncedDisk(Disk):
    """A disk that is never synced: nobody reads the files of an executor after a power cut."""

    fsync = staticmethod(lambda fd: None)
    fdatasync = staticmethod(lambda fd: None)


class NoJournal(KeeperJournal):
    """A journal that writes nothing: nobody takes over the tasks of a killed executor."""

    def append(self, records: Iterable[Any], *, sync: bool) -> None: ...

    def rewrite(self, records: Iterable[Any]) -> None: ...


class ConnectPauses:
    """Pauses before the next connection to the agent.

    They are short if the agent is away: a recovering one waits 2 s for us, by default. They grow if
    it is there and refuses our calls, as we would send the same again; but never so long that we
    would miss a recovery.
    """

    def __init__(self) -> None:
        self._pause_s = PAUSE_S

    def after(self, lasted_s: float, *, refused: bool) -> float:
        """Return how long to wait after a connection that lasted so long, and ended so."""
        if not refused:
            self._pause_s = PAUSE_S
            return PAUSE_S
        if lasted_s >= LASTED_S:
            self._pause_s = PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s


def runs_in(folder: str, places: SecretFolders) -> Runs:
    """Return a keeper's runs, none yet, with sandboxes in this folder, which is the working folder.

    Their secrets are not there: an agent shows all of it.
    """
    disk = UnsyncedDisk()
    boxes = SandboxFolders(folder, rules=STANDARD_RULES, disk=disk)
    boxes.open(())
    limits = Limits(folder, disk=disk)
    memory = Memory(processes.boot_id())
    runs = Runs(folder, memory, journal=NoJournal("journal"), boxes=boxes, limits=limits)
    runs.secret_files = SecretFiles(folder, lambda: "", places=places.roots)
    return runs


def work(environment: Mapping[str, str], guardian: int) -> None:
    """Be the executor that these variables describe, until it is over.

    `guardian` ends with the process of this name.
    """
    found = AgentEnvironment.of(environment)
    os.chdir(found.folder)
    processes.reset_signals()
    processes.become_subreaper()
    sweep()
    places = SecretFolders()
    runs = runs_in(os.path.realpath(found.folder), places)
    try:
        ExecutorLoop(found, runs, guardian=guardian).serve()
    finally:
        places.close()


class ExecutorLoop:
    """The loop of one executor."""

    def __init__(self, found: AgentEnvironment, runs: Runs, *, guardian: int) -> None:
        config: ExecutorConfig = found.config
        self._runs = runs
        self._talk = ExecutorTalk(config, lambda: uuid.uuid4().bytes, now=time.monotonic())
        self._selector = selectors.DefaultSelector()
        self._link = AgentLink(found.agent, self._selector, token=found.token)
        self._guardian = guardian
        self._selector.register(guardian, selectors.EVENT_READ)
        self._alarm = wake_on_signals(self._selector, self._talk.asked_to_end)
        self._next_round = time.monotonic()
        self._connect_at = self._connected_at = 0.0
        self._pauses = ConnectPauses()
        self._last_words_until: float | None = None
        self._said = ""

    def serve(self) -> None:
        """Serve until the executor is over, and nothing runs any more."""
        while not self._done():
            self._step(self._selector.select(self._timeout()))
        self._say(f"over: {self._talk.over}")

    def _done(self) -> bool:
        if not self._talk.over or self._runs.busy:
            return False
        now = time.monotonic()
        if self._last_words_until is None:
            self._last_words_until = now + LAST_WORDS_S
        return self._talk.has_told_all or not self._link.open or now >= self._last_words_until

    def _timeout(self) -> float:
        if self._runs.unfinished:
            return 0.0
        times = [
            self._next_round,
            self._runs.next_kill(),
            self._talk.wake_at,
            self._last_words_until,
            None if self._link.open or self._talk.over else self._connect_at,
        ]
        return max(0.0, min(at for at in times if at is not None) - time.monotonic())

    def _step(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Handle what is ready, ends first: a run may have ended before its kill was read."""
        self._runs.reap()
        for key, mask in ready:
            if key.fd == self._alarm:
                read_alarm(self._alarm)
            elif key.fd == self._guardian:
                self._selector.unregister(self._guardian)
                self._talk.guardian_gone()
            elif mask & selectors.EVENT_READ:
                self._read(key.data)
        now = time.monotonic()
        self._talk.due(now)
        self._obey()
        self._runs.kill_overdue(now)
        if now >= self._next_round:
            self._next_round = now + ROUND_S
            watch.check_all(self._runs)
        self._runs.commit()
        self._report()
        self._speak(now)

    # ---- runs ----

    def _obey(self) -> None:
        """Carry out the orders of events, in the order that they have for one run."""
        talk, runs = self._talk, self._runs
        launches, talk.launches = talk.launches, []
        kills, talk.kills = talk.kills, []
        forgotten, talk.forgotten = talk.forgotten, []
        if launches:
            runs.launch(HOST, launches)
        for name, grace_s in kills:
            runs.kill(HOST, name, grace_s=grace_s)
        if forgotten:
            runs.ack(forgotten)

    def _report(self) -> None:
        events, self._runs.events = self._runs.events, []
        for _, event in events:
            if event["a"] == "started":
                self._talk.started(event["run"], event["at"])
            elif event["a"] == "ended":
                end = {name: value for name, value in event.items() if name not in _NO_END}
                self._talk.ended(event["run"], end, at=event["at"])

    # ---- the agent ----

    def _read(self, pipe: Any) -> None:
        try:
            events = self._link.read(pipe)
        except AgentGone as gone:
            self._gone(gone)
            if isinstance(gone, AgentRefuses):
                self._talk.refused(str(gone))
            return
        now = time.monotonic()
        try:
            for event in events:
                self._talk.heard(event, now)
        except (AttributeError, KeyError, TypeError) as trouble:  # else all tasks would end
            self._gone(f"an event is not as it must be: {type(trouble).__name__}: {trouble}")

    def _speak(self, now: float) -> None:
        try:
            if not self._link.open:
                if now < self._connect_at or self._talk.over:
                    return
                self._connected_at = now
                self._link.connect()
                self._talk.connected()
                calls, self._talk.calls = self._talk.calls, []
                self._link.subscribe(calls[0])
            elif self._talk.calls:
                calls, self._talk.calls = self._talk.calls, []
                self._link.send(calls)
            self._link.flush()
        except AgentGone as gone:
            self._gone(gone)

    def _gone(self, gone: AgentGone) -> None:
        now, why = time.monotonic(), str(gone)
        self._link.close()
        refused, lasted_s = isinstance(gone, NotTaken), now - self._connected_at
        self._connect_at = now + self._pauses.after(lasted_s, refused=refused)
        self._talk.disconnected(now)
        if why != self._said:
            self._said = why
            self._say(why)

    def _say(self, text: str) -> None:
        """Write to the executor's own output, which the agent keeps."""
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, file=sys.stderr, flush=True)
