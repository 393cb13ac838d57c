"""Orders that wait for secrets at the link to a Mesos: what goes on meanwhile, and what waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import SecretRef
from peloton.backends.mesos import backend
from peloton.backends.mesos.masters.calls import CallFailed
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.secret_vault import SecretsUnavailable
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.bench import HOST, JOB, OTHER, name, start
from tests.backends.mesos.test_backend import Link
from tests.backends.mesos.test_conversation_secrets import FORMS, VALUE, held
from tests.backends.mesos.words import Json, agent, offer, reconciled, status

WAIT_S = 60.0
REFS = (SecretRef("s-1", "token"),)


class Waiting(Link):
    """A link whose store of secrets answers once it is let to."""

    def __init__(self) -> None:
        super().__init__(agent("S0", "h0"), agent("S1", "h1"))
        self.open = threading.Event()
        self.reading = threading.Event()
        self.trouble = ""
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.it.secrets.read = self._read
        self.it.secrets._pause_s = 0.0
        self._changed = threading.Condition()
        self.it._tell = self._took
        self.give(*(m.PingBackend(host) for host in (HOST, OTHER)))
        self.said()

    def _read(self, job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
        self.asked.append((job, tuple(wanted)))
        self.reading.set()
        assert self.open.wait(WAIT_S)
        if self.trouble:
            raise SecretsUnavailable(self.trouble)
        return dict.fromkeys(wanted, VALUE)

    def _took(self, envelopes: Any) -> None:
        with self._changed:
            self.told.extend(envelopes)
            self._changed.notify_all()

    def give(self, *orders: Any) -> None:
        """Hosts order this."""
        self._took(self.it.receive([Envelope(self.it.prefix, one) for one in orders], self.now))

    def start(self, host: Key = HOST, instance: int = 0) -> None:
        """One with a secret, which is being read from now on."""
        self.reading.clear()
        self.give(m.StartRuns(host, 1, (start(instance, secrets=REFS),)))
        assert self.reading.wait(WAIT_S)

    def let(self) -> None:
        """The store answers; returns when nothing waits for it any more."""
        self.open.set()
        behind = threading.Event()
        self.it.secrets.then("another", lambda values: behind.set(), wanted={"j": {"s-1"}})
        assert behind.wait(WAIT_S)

    def said(self) -> list[Json]:
        """The calls for the master since it was asked last."""
        found: list[Json] = []
        while not self.it._todo.empty():
            found += self.it._todo.get_nowait()
        return found

    def reports(self, kind: type[Any]) -> list[Any]:
        return [one.message for one in self.told if isinstance(one.message, kind)]


@pytest.fixture
def link() -> Iterator[Waiting]:
    made = Waiting()
    made.hear("OFFERS", offers=[offer("O0", "S0"), offer("O1", "S1")])
    made.said()
    yield made
    made.open.set()
    made.it.close()


def kinds(calls: list[Json]) -> list[str]:
    return [one["type"] for one in calls]


def test_a_launch_that_waits_holds_up_no_other_host_and_nobody_who_asks(link: Waiting) -> None:
    link.start()
    link.give(m.StartRuns(OTHER, 1, (start(5),)), m.PingBackend(HOST))
    assert kinds(link.said()) == ["ACCEPT"]
    assert link.reports(m.BackendUp)
    link.let()
    assert kinds(link.said()) == ["ACCEPT"]
    assert link.asked[0] == (JOB, ("s-1",)) and not held()


def test_a_kill_and_a_list_come_after_the_launch_that_waits(link: Waiting) -> None:
    link.start()
    link.give(m.StopRuns(HOST, 1, (name(0),), 0.0), m.ListRuns(HOST, 1, asked_at=5.0))
    assert not link.said() and not link.reports(m.RunsListed)
    link.let()
    assert kinds(link.said()) == ["ACCEPT", "KILL", "RECONCILE"]


def test_an_end_is_not_forgotten_before_a_repeated_launch_is_looked_at(link: Waiting) -> None:
    """Else the run would begin a second time: the master knows it no more."""
    link.open.set()
    link.start()
    link.let()
    link.hear("UPDATE", status=status(name(0), "FINISHED", uuid="u"))
    link.said()
    link.open.clear()
    link.start()
    link.give(m.ForgetRuns(HOST, (name(0),)))
    link.let()
    assert kinds(link.said()) == ["ACKNOWLEDGE"]


def test_what_waits_when_the_subscription_is_over_is_void(link: Waiting) -> None:
    link.start()
    link.give(m.StopRuns(HOST, 1, (name(0),), 0.0))
    link.it._say("no connection")
    link.hear("SUBSCRIBED", framework_id={"value": "f"})
    link.hear("OFFERS", offers=[offer("O2", "S0")])
    link.said()
    link.let()
    assert not link.said() and not held()
    link.start()
    assert kinds(link.said()) == ["ACCEPT"], "it is ordered anew, and read anew"
    assert [job for job, _ in link.asked].count(JOB) == 2


def test_a_store_that_is_down_gives_the_run_back(link: Waiting) -> None:
    link.trouble = "no answer"
    link.start()
    link.let()
    assert kinds(link.said()) == ["RECONCILE"]
    link.hear("UPDATE", status=reconciled(name(0), "UNKNOWN"))
    (end,) = (end for report in link.reports(m.RunsEnded) for end in report.ends)
    assert end.outcome.system and end.outcome.message == "no answer"


def test_calls_with_values_that_nobody_sends_any_more_are_dropped(link: Waiting) -> None:
    link.open.set()
    link.start()
    link.let()
    assert not link.it._todo.empty()
    link.it._say(backend.OVERTAKEN)
    assert link.it._todo.empty() and not held()


class Refusing:
    """In place of a driver: a master that takes no launch, and quotes none of it."""

    lives = connected = True

    def call(self, call: Json) -> None:
        raise CallFailed(f"{call['type']}: 400 Bad Request")

    def ask(self, question: Json) -> Json:
        raise CallFailed("not asked")


def test_no_value_is_in_a_log_or_in_what_health_says(
    link: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where what the value is part of goes wrong."""
    caplog.set_level(logging.DEBUG)
    link.open.set()
    link.start()
    link.let()
    driver: Any = Refusing()
    link.it._say(link.it._serve(driver))

    def raises(*_: object, **__: object) -> None:
        raise RuntimeError(f"with {VALUE!r} in it")

    link.hear("SUBSCRIBED", framework_id={"value": "f"})
    link.it._talk._start = raises  # type: ignore[method-assign, assignment]
    link.start(instance=1)
    link.let()
    told = [*map(repr, link.troubles), *map(repr, link.told), caplog.text]
    assert any("400 Bad Request" in one for one in told) and "RuntimeError" in caplog.text
    assert not [form for form in FORMS if any(form in one for one in told)]
