"""Where contract tests get their backends: one rig per adapter, all with the same methods.

A rig plays the shell (calls the backend, resets one that raises) and the hosts (collects what they
receive). What runs outlives `reconnect`, which is a new daemon. The rigs assert only that a report
comes in time; the tests have the other assertions.
"""

from __future__ import annotations

import enum
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import AddHost, RemoveHost
from peloton.actors.host.run_spec import Container, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.backends.port import Backend
from peloton.backends.process import RUN, ProcessBackend, TaskLimits
from peloton.backends.simulated import DURATION_VARIABLE, EXIT_VARIABLE, SimulatedBackend
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.vocabulary import Key, Message
from tests.fake_engine import install

HOSTS = ("a", "b")
POD_IMAGE = "localhost/pod:1"
HOST, OTHER, NEW = Key("host/a"), Key("host/b"), Key("host/new")
CAPACITY = Resources(4 * UNIT, UNIT, UNIT, 0)
DEADLINE_S = 60.0

Report = TypeVar("Report", bound=Message)


def run(name: str, seconds: float = 600.0, code: int = 0) -> m.StartRun:
    """A run that ends after so long with this exit code, on any backend."""
    environment = ((DURATION_VARIABLE, str(seconds)), (EXIT_VARIABLE, str(code)))
    value = f"sleep {seconds}; exit {code}"
    return m.StartRun(name, RunSpec(Resources(UNIT), value, environment=environment))


def pod(name: str, seconds: float, code: int = 0) -> m.StartRun:
    """The same of a container with an init container before it and another beside it."""
    alone = run(name, seconds, code)
    containers = (
        Container("first", "true", image=POD_IMAGE, init=True),
        Container("main", alone.spec.value, image=POD_IMAGE),
        Container("beside", f"sleep {seconds}", image=POD_IMAGE),
    )
    return replace(alone, spec=replace(alone.spec, containers=containers, image=POD_IMAGE))


class Exempt(enum.Enum):
    """What the contract demands and a backend cannot give. The suite says what it does instead."""

    CONFIGURED_HOSTS = "its hosts are in no configuration: the cluster says which there are"
    SHARED_MACHINES = "its machines are others', too: a use is answered once the master has it"
    PODS = "its executor starts all containers of a pod at once: none comes before the others"


class BackendRig:
    """Time stands still but for `wake`; what really takes time is waited for."""

    contains = False
    """Whether it runs images."""
    killed_by = "SIGTERM"
    """The signal in the end of a run that was killed at once."""
    exempt: frozenset[Exempt] = frozenset()
    kind = "backend"
    """Of its key."""
    left_text = "unplugged"
    """What a host is told that was taken away."""
    capacity = CAPACITY
    """Of a host that was brought back."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[tuple[Key, Message]] = []
        self.senders: set[Key | None] = set()  # of all reports
        self.replies: list[Reply] = []
        self.errors: list[str] = []
        self._changed = threading.Condition()
        self._at = 0
        self.reconnect()

    def make(self) -> Backend:
        """A backend of the hosts `HOSTS`, not yet started."""
        raise NotImplementedError

    def reconnect(self) -> None:
        """Another daemon takes the place of this one, if there is one yet."""
        if hasattr(self, "backend"):
            self.backend.close()
        self.backend = self.make()
        self.backend.start(self._collect)

    def order(self, *messages: Message) -> None:
        """Orders in one go, as a shell hands them over."""
        self._call([Envelope(self.backend.key, message) for message in messages])

    def ask(self, message: Message) -> Any:
        """The reply to an order."""
        self._call([Envelope(self.backend.key, message, reply_to=message)])
        assert self.replies[-1].reply_to is message
        return self.replies[-1].value

    def wake(self) -> None:
        """As much time passes as the backend waits for."""
        assert self.backend.wake_at is not None, "it waits for nothing"
        self.now = max(self.now, self.backend.wake_at)
        self._call([])

    def next_report(self, kind: type[Report], to: Key = HOST) -> Report:
        """The next report of a kind to a host; those before it are passed over."""

        def found() -> Report | None:
            while self._at < len(self.reports):
                host, message = self.reports[self._at]
                self._at += 1
                if host == to and isinstance(message, kind):
                    return message
            return None

        report = self._until(found)
        assert report is not None, f"no {kind.__name__} for {to}: {self.reports}"
        return report

    def ends(self, *runs: str, to: Key = HOST) -> dict[str, m.RunEnd]:
        """The next end of each of these runs."""
        ends: dict[str, m.RunEnd] = {}
        while not ends.keys() >= {*runs}:
            ends |= {end.run: end for end in self.next_report(m.RunsEnded, to).ends}
        return ends

    def take_away(self, host: Key) -> None:
        """The machine is gone; what runs there may go on."""
        self.order(RemoveHost(host, self.left_text))

    def bring_back(self, host: Key) -> None:
        """It is there again."""
        self.order(AddHost(host, CAPACITY))

    def gated(self, name: str) -> m.StartRun:
        """A run that goes on until its gate is opened, also where its machine is away."""
        raise NotImplementedError

    def open_gate(self, name: str) -> None:
        """Let it end well."""
        raise NotImplementedError

    def close(self) -> None:
        self.backend.stop_all(DEADLINE_S)
        self.backend.close()

    def _until(self, found: Callable[[], Report | None]) -> Report | None:
        raise NotImplementedError

    def _collect(self, envelopes: Iterable[Envelope]) -> None:
        with self._changed:
            for envelope in envelopes:
                self.reports.append((envelope.to, envelope.message))
                self.senders.add(envelope.sender)
            self._changed.notify_all()

    def _call(self, envelopes: list[Envelope]) -> None:
        try:
            reports = [*self.backend.receive(envelopes, self.now)]
        except Exception as error:  # as the shell of ephemeral services does
            self.errors.append(f"{type(error).__name__}: {error}")
            self.backend.reset()
            reports = []
        self.replies += [each for each in reports if isinstance(each, Reply)]
        self._collect(each for each in reports if isinstance(each, Envelope))


class SimulatedRig(BackendRig):
    """Runs take no time: whoever waits for one lets it pass."""

    def make(self) -> Backend:
        return SimulatedBackend(HOSTS)

    def _until(self, found: Callable[[], Report | None]) -> Report | None:
        report = found()
        while report is None and self.backend.wake_at is not None:
            self.wake()
            report = found()
        return report


class ProcessRig(BackendRig):
    """A real keeper and real processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()

    def make(self) -> Backend:
        return ProcessBackend(self._folder, HOSTS)

    def close(self) -> None:
        super().close()
        while self._folder.exists():  # the keeper may just be writing there; without it, it leaves
            shutil.rmtree(self._folder, ignore_errors=True)

    def _until(self, found: Callable[[], Report | None]) -> Report | None:
        with self._changed:
            return self._changed.wait_for(found, DEADLINE_S)


class ContainerRig(ProcessRig):
    """A real keeper, and each run a container of a stand-in for an engine."""

    contains = True
    killed_by = ""  # an engine tells exit codes, and this run may not even have been made

    def __init__(self, folder: Path) -> None:
        self._engine = install(folder.parent, "podman", "localhost/tiny:1")
        super().__init__(folder)

    def make(self) -> Backend:
        made = ProcessBackend(self._folder, HOSTS)
        made.limits = TaskLimits(images=RUN, engine=str(self._engine))
        return made

    def order(self, *messages: Message) -> None:
        super().order(*(_with_image(one) for one in messages))


def _with_image(message: Message) -> Message:
    if not isinstance(message, m.StartRuns) or message.runs is None:
        return message
    runs = (replace(one, spec=replace(one.spec, image="localhost/tiny:1")) for one in message.runs)
    return replace(message, runs=tuple(runs))
