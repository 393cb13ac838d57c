"""Times of runs that are reported together: few, and never such that a run seems shorter."""

from __future__ import annotations

from peloton.actors.host import messages as m
from peloton.actors.resources import Resources
from peloton.backends import keeper_messages as km
from peloton.backends.run_times import GRAIN_S, earliest, latest, with_common_times
from peloton.backends.simulated import SimulatedBackend
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key, key

HOST = key("host", "h")


def test_times_of_one_moment_are_one() -> None:
    times = [5.01, 5.02, 5.09, 7.05]
    assert earliest(times) == {5.01: 5.01, 5.02: 5.01, 5.09: 5.01, 7.05: 7.05}
    assert latest(times) == {5.01: 5.09, 5.02: 5.09, 5.09: 5.09, 7.05: 7.05}
    many = [at / 1000 for at in range(5000)]
    assert len({*earliest(many).values()}) <= 5 / GRAIN_S + 1


def ended(run: str, at: float, started_at: float | None) -> km.KeeperRunEnded:
    return km.KeeperRunEnded("h", run, "SUCCEEDED", 0, None, "", "", at, started_at)


def test_reports_of_a_keeper_that_come_together_share_their_times() -> None:
    alone = km.RunStarted("h", "a", 1, 5.05)
    assert with_common_times([alone]) == [alone]
    listed = km.ListedRun("d", "ended", 4, 5.01, ended("d", 7.01, 5.01))
    reports = with_common_times([
        km.RunStarted("h", "b", 2, 5.04), alone, ended("c", 7.02, 5.03), ended("e", 7.05, None),
        km.KeeperRunsListed("h", (listed,), 8.0),
    ])  # fmt: skip
    assert reports == [
        km.RunStarted("h", "b", 2, 5.01), km.RunStarted("h", "a", 1, 5.01),
        ended("c", 7.05, 5.01), ended("e", 7.05, None),
        km.KeeperRunsListed(
            "h", (km.ListedRun("d", "ended", 4, 5.01, ended("d", 7.05, 5.01)),), 8.0
        ),
    ]  # fmt: skip


def test_an_older_keeper_tells_no_start_with_its_end() -> None:
    message = {
        "a": "ended", "host": "h", "run": "r", "outcome": "SUCCEEDED", "exit_code": 0,
        "signal": None, "reason": "", "message": "", "at": 7.0,
    }  # fmt: skip
    assert km.read_report(message) == ended("r", 7.0, None)
    assert km.read_report({**message, "started_at": 0.0}) == ended("r", 7.0, None)
    assert km.read_report({**message, "started_at": 6.0}) == ended("r", 7.0, 6.0)


def test_a_simulated_run_starts_when_it_is_ordered_and_ends_when_it_is_due() -> None:
    backend = SimulatedBackend(["h"])
    start = m.StartRuns(HOST, 1, (m.StartRun("j-0-1", m.RunSpec(Resources(1), "true")),))
    assert sent(backend, start, now=10.0) == [m.RunsStarted(("j-0-1",), 10.0)]
    (end,) = sent(backend, m.PingBackend(HOST), now=15.0)[1:]
    assert [(one.run, one.at) for one in end.ends] == [("j-0-1", 11.0)]


def sent(backend: SimulatedBackend, order: m.Message, *, now: float) -> list[m.Message]:
    out = backend.receive([Envelope(Key("backend/simulated"), order)], now)
    return [one.message for one in out if isinstance(one, Envelope)]
