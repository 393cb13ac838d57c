"""Real processes on virtual hosts: what hosts order goes to the keeper, what it says comes back.

Turns messages of host actors into keeper requests, and keeper reports into messages for them. One
instance serves every virtual host of this daemon. It must not judge an end or decide a retry, and
it never waits: the keeper's client has a thread of its own and calls `tell` from there.
"""

from __future__ import annotations

import signal as signals
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from peloton.actors.host import messages as m
from peloton.actors.resources import amount
from peloton.actors.task.messages import End, Outcome
from peloton.backends import process_runs as keeper
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key, key

BACKEND = key("backend", "process")
STOP_SLACK_S = 3.0
"""How long after the grace a kill may take to be reported."""


class ProcessBackend:
    """The soft machine behind `backend/process`."""

    own_thread = False  # the keeper's client has one; nothing here waits

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._folder = folder
        self._hosts = list(hosts)
        self._runs: keeper.ProcessRuns | None = None
        self._tell: Callable[[Iterable[Envelope]], None] | None = None
        self._epochs: dict[str, int] = {}
        self._alive: dict[str, str] = {}  # runs not known to have ended, with their hosts
        self._none_alive = threading.Event()
        self._started = threading.Event()

    def start(self, tell: Callable[[Iterable[Envelope]], None]) -> None:
        """Begin to talk with the keeper; `tell` takes messages for hosts, from any thread."""
        self._tell = tell
        self._runs = keeper.ProcessRuns(self._folder, self._hear)
        self._started.set()

    @property
    def wake_at(self) -> float | None:
        """Nothing here waits for a time."""
        return None

    def sandbox(self, run: str) -> Path:
        """The folder a run works in; it may not exist."""
        assert self._runs is not None
        return self._runs.sandbox(run)

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope]:
        """Orders of hosts. Before the start they are dropped: the hosts compare after it."""
        if self._runs is None:
            return ()
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, m.StartRuns):
                name = self._greet(message.host, message.epoch)
                requests = [_request(name, run) for run in message.runs]
                self._alive.update((run.run, name) for run in message.runs)
                self._runs.launch(name, message.epoch, runs=requests)
            elif isinstance(message, m.StopRuns):
                name = self._greet(message.host, message.epoch)
                for run in message.runs:
                    self._runs.kill(name, run, grace_s=message.grace_s)
            elif isinstance(message, m.ForgetRuns):
                self._runs.ack(message.runs)
            elif isinstance(message, m.ListRuns):
                self._runs.list(self._greet(message.host, message.epoch))
        return ()

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait for it: for a cluster that leaves nothing behind."""
        assert self._runs is not None
        self._none_alive.clear()
        for run, host in [*self._alive.items()]:
            self._runs.kill(host, run, grace_s=grace_s)
        if not self._alive:
            return True
        return self._none_alive.wait(grace_s + STOP_SLACK_S)

    def reset(self) -> None:
        """Only what the hosts' epochs are is held here; the next order greets anew."""
        self._epochs = {}

    def close(self) -> None:
        """Leave the keeper and its runs as they are."""
        if self._runs is not None:
            self._runs.close()

    def _greet(self, host: Key, epoch: int) -> str:
        name = host.partition("/")[2]
        if self._epochs.get(name) != epoch:
            assert self._runs is not None
            self._epochs[name] = epoch
            self._runs.hello(name, epoch)
        return name

    def _hear(self, report: keeper.RunReport) -> None:
        """A report of the keeper, on its client's thread.

        It begins to report before `start` has the client in its hands; a host that then asked for
        its runs would ask nobody, and wait for ever.
        """
        assert self._tell is not None
        self._started.wait()
        if isinstance(report, keeper.BackendUp):
            self._tell([Envelope(key("host", name), m.BackendUp()) for name in self._hosts])
        elif isinstance(report, keeper.BackendDown):
            down = m.BackendDown(f"keeper: {report.why}")
            self._tell([Envelope(key("host", name), down) for name in self._hosts])
        elif isinstance(report, keeper.RunStarted):
            self._say(report.host, m.RunsStarted((report.run_id,)))
        elif isinstance(report, keeper.RunEnded):
            self._buried(report.run_id)
            self._say(report.host, m.RunsEnded((_end(report),)))
        elif isinstance(report, keeper.RunsListed):
            for run in report.runs:
                if run.ended is None:
                    self._alive[run.run_id] = report.host
                else:
                    self._buried(run.run_id)
            self._say(report.host, _listed(report))
        # RunUnknown: the host asked to kill what the keeper never heard of. It is not in the
        # next listing either, and that is where the ledger is mended. EpochRefused: another
        # owner has the host; the journal fences us by itself.

    def _buried(self, run: str) -> None:
        self._alive.pop(run, None)
        if not self._alive:
            self._none_alive.set()

    def _say(self, host: str, message: m.RunsStarted | m.RunsEnded | m.RunsListed) -> None:
        assert self._tell is not None
        self._tell([Envelope(key("host", host), message)])


def _request(host: str, run: m.StartRun) -> keeper.RunRequest:
    spec = run.spec
    return keeper.RunRequest(
        run_id=run.run,
        host=host,
        value=spec.value,
        shell=spec.shell,
        arguments=spec.arguments,
        environment=dict(run.environment),
        memory_mb=amount(spec.resources.memory),
    )


def _end(report: keeper.RunEnded) -> m.RunEnd:
    signal = _signal_name(report.signal) if report.signal else ""
    outcome = Outcome(
        end=End[report.outcome],
        exit_code=report.exit_code,
        signal=signal,
        reason=report.reason,
        message=report.message,
        system=report.outcome == "LOST",
    )
    return m.RunEnd(report.run_id, outcome)


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time signal has a number only


def _listed(report: keeper.RunsListed) -> m.RunsListed:
    running = tuple(run.run_id for run in report.runs if run.ended is None)
    ends = tuple(_end(run.ended) for run in report.runs if run.ended is not None)
    return m.RunsListed(running, ends)
