"""The lease lock on a real fleet of three daemons: its package is added to one daemon, then to all,
upgraded, rolled back, removed; jobs run all the while, and no lock that was acknowledged is lost.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lease_lock.kind import Acquire, Lease, Lock

from peloton.sdk.client import Client
from peloton.sdk.errors import NotFound, ServiceUnavailable, TryLater
from tests.adapters.test_daemon_servers import Cluster, cluster
from tests.adapters.test_daemon_wiring import until
from tests.e2e.cluster import job, pool
from tests.e2e.extensions.distributions import lease_lock, remove_info, upgrade

__all__ = ["cluster"]
LONG_S = 36_000.0
NAMES = ("one", "two", "three")
WAIT_S_MAX = 60.0


def patiently(ask: Callable[[], Any]) -> Any:
    """Ask again while shards move; the answer in a list, so that none of them is false."""

    def once() -> list[Any]:
        try:
            return [ask()]
        except (ServiceUnavailable, TryLater):
            return []

    return until(once)[0]


class Fleet:
    """Three daemons, each with a folder of packages of its own."""

    def __init__(self, of: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self._patch = of, monkeypatch
        self.sites = {name: of.folder / f"site-{name}" for name in NAMES}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        self.held: dict[str, tuple[str, int]] = {}
        """What was acknowledged: the holder of each lock, and its token."""

    def start(self, name: str) -> None:
        self.sites[name].mkdir(exist_ok=True)
        self._patch.setenv("PYTHONPATH", str(self.sites[name]))
        self.processes[name], self.addresses[name] = self.cluster.start(name)

    def restart(self, name: str, *, kill: bool = False) -> None:
        """End a daemon, as an operator does or as a machine, and start it with what it has now."""
        process = self.processes[name]
        process.kill() if kill else process.terminate()
        process.wait(WAIT_S_MAX)
        self.start(name)

    def client(self, name: str) -> Client:
        return Client(self.addresses[name], timeout_s=10.0)

    def locked(self, at: str, lock: str, holder: str) -> None:
        """Take a lock at one daemon."""
        with self.client(at) as client:
            message = Acquire(holder, LONG_S)
            lease = patiently(lambda: client.actors("lock").tell(lock, message, into=Lease))
        assert lease.token > self.held.get(lock, ("", 0))[1]
        self.held[lock] = holder, lease.token

    def check(self, *names: str) -> None:
        """Every lock is held as it was acknowledged, at each of these daemons."""
        for name in names:
            with self.client(name) as client:
                found = patiently(lambda: dict(client.actors("lock").all(into=Lock)))
            assert {lock: (each.holder, each.token) for lock, each in found.items()} == self.held


class Work:
    """Jobs that are created at one daemon after another, each until it has ended."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._over = fleet, threading.Event()
        self.ended, self.trouble = 0, list[BaseException]()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                for name in NAMES:
                    self._one(name)
        except BaseException as error:  # told by the test itself
            self.trouble.append(error)

    def _one(self, name: str) -> None:
        with contextlib.suppress(ServiceUnavailable, TryLater), self._fleet.client(name) as client:
            made = client.jobs.create("/tests", job(1, "true")).jobId.value
            with contextlib.suppress(ServiceUnavailable, TryLater):
                result = client.ops.wait(made, timeout_s=WAIT_S_MAX)
                assert not result.done or result.state == "SUCCEEDED", result
                self.ended += result.done

    def goes_on(self) -> None:
        """Two more jobs end from now on."""
        before = self.ended
        until(lambda: self.trouble or self.ended >= before + 2)
        assert not self.trouble, self.trouble

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


@pytest.mark.nightly  # many starts of daemons
@pytest.mark.timeout(900)
def test_a_package_comes_and_goes_on_a_running_fleet(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(cluster, monkeypatch)
    for name in NAMES:
        fleet.start(name)
    with fleet.client("one") as client:
        patiently(lambda: pool(client))
    work = Work(fleet)
    with work.running():
        work.goes_on()

        # Added to one: it serves the kind alone, and the others go on with jobs.
        lease_lock(fleet.sites["one"])
        fleet.restart("one")
        fleet.locked("one", "first", "ann")
        elsewhere = "kind 'lock' is not installed at this daemon, but at others of the cluster"
        with fleet.client("two") as client, pytest.raises(ServiceUnavailable, match=elsewhere):
            client.actors("lock").state("first")
        with Client(f"{fleet.addresses['two']},{fleet.addresses['one']}") as client:
            assert client.actors("lock").state("first", into=Lock) == Lock("ann", 1, LONG_S)
        work.goes_on()

        # Added to all: any of them serves it, and takes over from one that dies.
        for name in ("two", "three"):
            lease_lock(fleet.sites[name])
            fleet.restart(name)
        fleet.locked("two", "second", "bob")
        fleet.check(*NAMES)
        fleet.restart("one", kill=True)
        fleet.locked("three", "third", "cy")
        fleet.check(*NAMES)
        work.goes_on()

        # One is upgraded and rolled back before the first new message: states of both versions are
        # read by both, and nothing that version 1 cannot read is written.
        for version, install in (("two", upgrade), ("one", lease_lock)):
            install(fleet.sites["one"])
            fleet.restart("one")
            fleet.locked("one", f"version-{version}", "ann")
            fleet.check(*NAMES)
        work.goes_on()

        # All are upgraded, one after another, and then used.
        for name in NAMES:
            upgrade(fleet.sites[name])
            fleet.restart(name)
            fleet.locked(name, f"during-{name}", "bob")
        fleet.check(*NAMES)
        note = ("Annotate", {"note": "weekly"})
        with fleet.client("two") as client:
            patiently(lambda: client.actors("lock").tell("first", note))
        fleet.restart("two", kill=True)
        with fleet.client("three") as client:
            state = patiently(lambda: client.actors("lock").state("first"))
        assert state is not None and state["note"] == "weekly"
        fleet.check(*NAMES)
        work.goes_on()

        # Removed from all: daemons start and run jobs. Put back at one: every lock is there.
        for name in NAMES:
            remove_info(fleet.sites[name])
            fleet.restart(name)
        for name in NAMES:
            with fleet.client(name) as client:
                assert patiently(client.kinds) == []
        with fleet.client("one") as client, pytest.raises(NotFound, match="in this cluster"):
            client.actors("lock").state("first")
        work.goes_on()
        lease_lock(fleet.sites["three"])
        upgrade(fleet.sites["three"])
        fleet.restart("three")
        fleet.check("three")
        work.goes_on()
