"""A backend is started once and closed once, whichever thread comes first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peloton.assembly.backend_switch import BackendSwitch
from peloton.assembly.backends import Backends
from peloton.assembly.lockdowns import LockFollower
from peloton.backends.keeper_folder import KeeperOwner, OwnedByAnother


class Backend:
    """Counts what it is told; `error` is raised by its start."""

    key = prefix = "backend/counting"

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._error = error

    def start(self, tell: Any, trouble: Any) -> None:
        if self._error is not None:
            raise self._error
        self.calls.append("start")

    def stop_all(self, grace_s: float) -> bool:
        self.calls.append(f"stop all in {grace_s:g} s")
        return False

    def close(self) -> None:
        self.calls.append("close")


class Root:
    """Keeps why it was given up."""

    def __init__(self) -> None:
        self.region = SimpleNamespace(tell=list, report_problem=print)
        self.reasons: list[str] = []

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def switch(backend: Any, root: Any = None) -> BackendSwitch:
    return BackendSwitch(backend, root or Root())  # type: ignore[arg-type]


def test_it_starts_once_and_closes() -> None:
    backend = Backend()
    made = switch(backend)
    made.start()
    made.start()
    assert not made.stop_all(2.0), "what the backend answers"
    made.close()
    assert backend.calls == ["start", "stop all in 2 s", "close"]


def test_a_start_after_the_close_does_nothing() -> None:
    backend = Backend()
    made = switch(backend)
    made.close()
    made.start()
    assert backend.calls == [] and made.stop_all(2.0)


def test_a_daemon_whose_backend_cannot_begin_ends_with_the_reason() -> None:
    root, backend = Root(), Backend(OSError(28, "No space left on device", "/keeper"))
    made = switch(backend, root)
    made.start()
    made.close()
    assert root.reasons == ["backend: /keeper: No space left on device"]
    assert backend.calls == []


class Region:
    """Takes services by their keys."""

    tell = report_problem = staticmethod(list)

    def __init__(self) -> None:
        self.services: dict[str, Any] = {}

    def register_service(self, prefix: str, service: Any, *, outward: bool) -> None:
        self.services[prefix] = service


def test_several_start_and_close_though_one_of_them_cannot() -> None:
    root, locks = Root(), LockFollower(None)  # type: ignore[arg-type]
    root.region = Region()  # type: ignore[assignment]
    well, ill = Backend(), Backend(OSError(28, "No space left on device"))
    ill.key = ill.prefix = "backend/ill"
    made = Backends([ill, well], root, locks=locks)  # type: ignore[arg-type]
    made.start()
    assert not made.stop_all(2.0) and made.of_config is None
    made.close()
    assert well.calls == ["start", "stop all in 2 s", "close"] and ill.calls == []
    assert root.reasons == ["backend: No space left on device"]
    assert {*root.region.services} == {"backend/counting", "backend/ill"}  # type: ignore[attr-defined]


def test_a_daemon_without_hosts_has_none() -> None:
    made = Backends((), Root(), locks=LockFollower(None))  # type: ignore[arg-type]
    made.start()
    assert made.stop_all(2.0) and made.notes() == () and made.of_config is None
    made.close()


def test_a_folder_that_another_cluster_has_taken_ends_the_daemon_with_the_reason() -> None:
    known, wanted = KeeperOwner("01", "west"), KeeperOwner("02", "east")
    root = Root()
    switch(Backend(OwnedByAnother(Path("/k"), known=known, wanted=wanted)), root).start()
    (reason,) = root.reasons
    assert reason.startswith("backend: keeper folder /k serves cluster west (id 01), this is ")
