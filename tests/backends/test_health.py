"""What results of health checks come to, how changes are told, and what a request finds."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Iterator
from queue import Queue

import pytest

from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.task.run_messages import HealthCheck, HttpProbe, LiveRun, TaskHealth
from peloton.backends.check_progress import CheckProgress, ReadyProgress, Verdict
from peloton.backends.health_loop import CheckedRun, HealthLoop, first_after_s
from peloton.backends.http_probe import _unverified, probe
from peloton.backends.simulated_health import ILL, SimulatedHealth, moments
from peloton.runtime.vocabulary import Key

HOST = Key("host/a")
WELL, ILL_NOW, OVER = Verdict(True), Verdict(False), Verdict(False, True)


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        ("+", [WELL]),
        ("++", [WELL, None]),
        ("+-+", [WELL, ILL_NOW, WELL]),
        ("---", [ILL_NOW, None, OVER]),
        ("--+--", [ILL_NOW, None, WELL, ILL_NOW, None]),
        ("-?-?-", [ILL_NOW, None, None, None, OVER]),
        ("?", [None]),
    ],
)
def test_only_changes_are_told_and_three_failures_in_a_row_are_the_end(
    results: str, verdicts: list[Verdict | None]
) -> None:
    progress = CheckProgress(3)
    found = [progress.result({"+": True, "-": False}.get(result)) for result in results]
    assert found == verdicts


def test_one_failure_may_be_enough() -> None:
    assert CheckProgress(1).result(False) == OVER


@pytest.mark.parametrize(
    ("results", "changes"),
    [
        ("++", [True, None]),
        ("--+", [False, None, True]),
        ("+--+", [True, None, None, None]),
        ("+---+", [True, None, None, False, True]),
        ("?-?", [None, False, None]),
    ],
)
def test_a_run_is_ready_until_it_fails_three_times_in_a_row(
    results: str, changes: list[bool | None]
) -> None:
    progress = ReadyProgress(3)
    found = [progress.result({"+": True, "-": False}.get(result)) for result in results]
    assert found == changes


def test_first_checks_wait_for_the_start_and_are_spread_after_a_restart() -> None:
    check = HealthCheck(initial_s=15.0, interval_s=10.0)
    new = CheckedRun(HOST, "r", check, 100.0)
    assert first_after_s(new, 100.0) == 15.0 and first_after_s(new, 112.0) == 3.0
    assert first_after_s(new, 50.0) == 15.0, "clocks may jump"
    old = {first_after_s(CheckedRun(HOST, f"r{n}", check, 0.0), 1000.0) for n in range(100)}
    assert len(old) > 50 and all(0.0 <= after_s < 10.0 for after_s in old)


# ---- by HTTP ----


asked = threading.Event()
"""A server that does not answer has got its request."""


class Server(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the path names, or not at all."""

    def do_GET(self) -> None:  # noqa: N802
        word = self.path[1:]
        if word == "silent":
            asked.set()
            self.server.hold.wait(30)  # type: ignore[attr-defined]
        elif word == "other":
            self.wfile.write(b"SSH-2.0\r\n")
        else:
            self.send_response(int(word))
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.hold = threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.hold.set()  # type: ignore[attr-defined]
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "ok", "text"),
    [
        ("/200", True, "status 200"),
        ("/204", True, "status 204"),
        ("/302", True, "status 302"),
        ("/404", False, "status 404"),
        ("/500", False, "status 500"),
        ("/other", False, "the answer is not HTTP"),
        ("/silent", False, "no answer in 0.3 s"),
    ],
)
def test_the_status_decides(port: int, path: str, ok: bool, text: str) -> None:
    timeout_s = 0.3 if path == "/silent" else 30.0
    found = asyncio.run(probe(HttpProbe(port, path), timeout_s))
    assert found == (ok, f"GET http://127.0.0.1:{port}{path}: {text}")


def test_nobody_who_listens_is_no_health(port: int) -> None:
    ok, text = asyncio.run(probe(HttpProbe(1), 30.0))
    assert not ok and text.startswith("GET http://127.0.0.1:1/: ")


def test_a_server_without_tls_is_none_of_https(port: int) -> None:
    ok, text = asyncio.run(probe(HttpProbe(port, "/200", "https"), 30.0))
    assert not ok and text.startswith(f"GET https://127.0.0.1:{port}/200: ")


def test_probes_by_https_share_what_is_costly_to_make() -> None:
    assert _unverified() is _unverified()
    assert not _unverified().get_ca_certs(), "nobody verifies by them"


# ---- the loop ----


class Keeper:
    """Takes orders of commands, and answers none by itself."""

    def __init__(self) -> None:
        self.told: Queue[bool] = Queue()
        self.changes: Queue[LiveRun] = Queue()
        self.orders: Queue[int] = Queue()

    def tell(self, host: Key, changed: RunsChanged) -> None:
        self.told.put(changed.runs[0].live.healthy is True)
        self.changes.put(changed.runs[0].live)

    def order(self, run: str, number: int, *, check: HealthCheck) -> bool:
        self.orders.put(number)
        return True


def watching(keeper: Keeper) -> tuple[HealthLoop, int]:
    """A loop, and the number of the first check that it has ordered."""
    loop = HealthLoop(keeper.tell, keeper.order)
    check = HealthCheck("x", initial_s=0.0, interval_s=0.001)
    loop.watch(CheckedRun(HOST, "r", check, time.time()))
    return loop, keeper.orders.get(timeout=30)


def test_the_outcome_of_an_earlier_daemons_check_is_not_taken_for_a_later_ones() -> None:
    """The keeper tells it the present owner of the host, whoever has asked."""
    keeper = Keeper()
    first, old = watching(keeper)
    first.close()
    second, number = watching(keeper)
    try:
        second.answered(old, (False, "too late"))
        second.answered(number, (True, ""))
        assert keeper.told.get(timeout=30) is True
    finally:
        second.close()


def test_a_command_that_is_never_carried_out_is_told_and_not_asked_for_again() -> None:
    """Each of the two by itself: the health, and the readiness."""
    keeper = Keeper()
    loop = HealthLoop(keeper.tell, keeper.order)
    check = HealthCheck("x", initial_s=0.0, interval_s=0.001)
    loop.watch(CheckedRun(HOST, "r", check.beside(check), time.time()))
    try:
        numbers = [keeper.orders.get(timeout=30) for _ in range(2)]
        for number in numbers:
            loop.refused(number, "no")
        changes = [keeper.changes.get(timeout=30) for _ in numbers]
        last = changes[-1]
        assert [one.unchecked and one.ungated for one in changes] == [False, True]
        assert last.healthy is None and last.text == last.unready_text == "not checked: no"
    finally:
        loop.close()
    assert keeper.orders.empty()


@pytest.mark.parametrize("readiness", [False, True])
def test_why_a_command_cannot_be_run_is_told_until_it_can(readiness: bool) -> None:
    keeper = Keeper()
    loop = HealthLoop(keeper.tell, keeper.order)
    check = HealthCheck("x", initial_s=0.0, interval_s=0.001)
    loop.watch(
        CheckedRun(HOST, "r", HealthCheck().beside(check) if readiness else check, time.time())
    )
    said = "the check could not be carried out: permission denied"
    try:
        for outcome in ((None, "permission denied"), (None, "permission denied"), (True, "")):
            loop.answered(keeper.orders.get(timeout=30), outcome)
        first, second = (keeper.changes.get(timeout=30) for _ in range(2))
        assert first.healthy is None and said == (first.unready_text if readiness else first.text)
        assert (first.ready, second.unready_text) == (TaskHealth.DISABLED, "")
        if readiness:
            assert second.ready == TaskHealth.HEALTHY
        else:
            assert second.healthy and second.text == ""
    finally:
        loop.close()


def test_orders_after_the_close_have_no_effect() -> None:
    loop, number = watching(Keeper())
    loop.close()
    loop.drop(["r"])
    loop.noted(["r"], 1)
    loop.answered(number, (True, ""))
    loop.watch(CheckedRun(HOST, "r", HealthCheck("x"), 0.0))
    loop.close()


def test_a_server_that_does_not_answer_does_not_hold_up_the_close(port: int) -> None:
    asked.clear()
    loop, probed = HealthLoop(Keeper().tell, Keeper().order), HttpProbe(port, "/silent")
    check = HealthCheck(http=probed, initial_s=0.0, interval_s=0.001, timeout_s=3600.0)
    loop.watch(CheckedRun(HOST, "r", check, time.time()))
    assert asked.wait(30)
    loop.close()  # else it takes an hour


# ---- simulated ----


def test_what_becomes_of_a_simulated_run_follows_from_its_draws() -> None:
    check = HealthCheck(initial_s=5.0, interval_s=2.0, max_failures=3)
    fates = {"well": 0.9, "late": 0.3, "never": 0.1}

    def chance(run: str, what: str) -> float:
        return fates[run] if what == "health" else 0.0

    def drawn(run: str) -> list[tuple[float, bool, bool]]:
        return moments(run, check, ill=0.4, chance=chance)

    assert drawn("well") == [(5.0, True, False)]
    assert drawn("late") == [(5.0, True, False), (7.0, False, False), (11.0, False, True)]
    assert drawn("never") == [(5.0, False, False), (9.0, False, True)]


def test_the_readiness_of_a_simulated_run_follows_from_its_draws() -> None:
    check = HealthCheck(readiness=HealthCheck("x", initial_s=5.0, interval_s=2.0))
    fates = {"well": 0.9, "late": 0.3, "off": 0.1}
    found: dict[str, list[tuple[float, TaskHealth]]] = {name: [] for name in fates}
    health = SimulatedHealth(0.4, lambda run, what: fates[run] if what == "readiness" else 0.0)
    for name in fates:
        health.watch(HOST, name, check=check, since=0.0, now=0.0)
    for now in (5.0, 7.0, 9.0):
        for change in (one for _, told in health.due(now) for one in told.runs):
            assert change.live.healthy is None
            found[change.run].append((now, change.live.ready))
    ready, not_ready = TaskHealth.HEALTHY, TaskHealth.UNHEALTHY
    assert found["well"] == [(5.0, ready)]
    assert found["late"] == [(5.0, not_ready), (7.0, ready)]
    assert found["off"] == [(5.0, ready), (7.0, not_ready), (9.0, ready)]


def test_a_simulated_run_that_is_adopted_late_has_its_last_change() -> None:
    health = SimulatedHealth(1.0, lambda run, what: 0.0)
    check = HealthCheck(initial_s=5.0, interval_s=2.0, max_failures=3)
    health.watch(HOST, "r", check=check, since=0.0, now=6.0)
    (change,) = health.due(6.0)[0][1].runs
    assert change.live == LiveRun(False, ILL)
    assert health.wake_at == 9.0
    (change,) = health.due(9.0)[0][1].runs
    assert change.live.over
    health.drop(["r"])
    assert health.due(1000.0) == []
