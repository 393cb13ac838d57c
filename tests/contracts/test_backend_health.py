"""What every backend does about the health of runs: `port.py`, "Health" and "Changes"."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import (
    ChangesNoted,
    CheckedSet,
    KnownSet,
    RunChange,
    RunsChanged,
)
from peloton.actors.task.run_messages import HealthCheck, HttpProbe, LiveRun, TaskHealth
from peloton.runtime.vocabulary import Bits, Key
from tests.contracts.backend_rigs import begun
from tests.contracts.backends import HOST, BackendRig, run

SOON = HealthCheck(initial_s=0.05, interval_s=0.05, timeout_s=30.0, max_failures=3)
CROWD, NAME = Key("task/r/0"), "r-0-1"


class Page(http.server.BaseHTTPRequestHandler):
    """Answers each request well."""

    def do_GET(self) -> None:  # noqa: N802
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(params=["simulated", "process", "real_mesos"])
def rig(request: pytest.FixtureRequest) -> Iterator[BackendRig]:
    yield from begun(request)


def checked(check: HealthCheck, name: str = NAME) -> m.StartRun:
    started = run(name)
    return replace(started, spec=replace(started.spec, check=check))


def by_http(port: int) -> HealthCheck:
    return replace(SOON, http=HttpProbe(port))


def told(rig: BackendRig) -> RunChange:
    (change,) = rig.next_report(RunsChanged).runs
    return change


def test_a_change_is_told_again_until_its_number_is_noted(rig: BackendRig, port: int) -> None:
    rig.order(m.StartRuns(HOST, 1, (checked(by_http(port)),)))
    first = told(rig)
    assert (first.run, first.live.healthy, first.live.over) == (NAME, True, False)
    rig.order(ChangesNoted(HOST, (NAME,), first.number))
    rig.order(ChangesNoted(HOST, (NAME,), first.number - 1))
    assert told(rig) == first, "whoever has seen another change may believe that"


def test_another_daemon_is_told_what_is_checked_and_tells_it_anew(
    rig: BackendRig, port: int
) -> None:
    rig.order(m.StartRuns(HOST, 1, (checked(by_http(port)),)))
    first = told(rig)
    rig.reconnect()
    rig.next_report(m.BackendUp)
    known = KnownSet(CROWD, 1, Bits.of(0), 0.0)
    some = CheckedSet(CROWD, 1, Bits.of(0), by_http(port), 0.0)
    rig.now += 0.5
    rig.order(m.ListRuns(HOST, 1, 7.0, (known,), (some,)))
    again = told(rig)
    assert again.live.healthy and again.number > first.number


def test_a_run_that_is_to_end_is_not_checked(rig: BackendRig, port: int) -> None:
    rig.order(m.StartRuns(HOST, 1, (checked(by_http(port)),)))
    first = told(rig)
    rig.order(m.StopRuns(HOST, 1, (NAME,), 5.0))
    rig.order(ChangesNoted(HOST, (NAME,), first.number - 1))
    rig.ends(NAME)
    rig.order(m.StartRuns(HOST, 1, (checked(by_http(port), "r-1-1"),)))
    assert told(rig).run == "r-1-1"


def test_a_run_without_a_check_has_no_health(rig: BackendRig, port: int) -> None:
    rig.order(m.StartRuns(HOST, 1, (run("r-1-1"), checked(by_http(port)))))
    assert told(rig).run == NAME


def test_readiness_is_told_beside_health_and_ends_nothing(rig: BackendRig, port: int) -> None:
    readiness = by_http(port)
    rig.order(m.StartRuns(HOST, 1, (checked(HealthCheck(readiness=readiness)),)))
    assert told(rig).live == LiveRun(ready=TaskHealth.HEALTHY)
    both = replace(by_http(port), readiness=readiness)
    rig.order(m.StartRuns(HOST, 1, (checked(both, "r-1-1"),)))
    found: list[LiveRun] = []
    while not found or None is found[-1].healthy or found[-1].ready != TaskHealth.HEALTHY:
        found += [one.live for one in rig.next_report(RunsChanged).runs if one.run == "r-1-1"]
    assert found[-1].healthy
