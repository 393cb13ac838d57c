"""Orders that wait for secrets: what goes on meanwhile, what does not, and what comes of outages.

The backend over a real keeper, and the queue alone.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import RunSpec, SecretRef
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SECRET_NOT_FOUND, SECRETS_UNAVAILABLE, End
from peloton.backends.secrets_first import SecretsFirst, SecretValues
from peloton.runtime.shells.secret_vault import SecretsUnavailable, SecretUnreadable
from tests.backends.keeper.test_backend import HOST, Machine

RUN = "6c39f418-71f5-4ca3-997c-ebe331f79d81-0-1"
JOB = RUN[:-4]


class Store:
    """Answers once it is let to."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {"s-1": b"the value"}
        self.down = ""
        self.open = threading.Event()
        self.open.set()
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def read(self, job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
        self.asked.append((job, tuple(sorted(wanted))))
        assert self.open.wait(60)
        if self.down:
            raise SecretsUnavailable(self.down)
        return {one: self.values[one] for one in wanted if one in self.values}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def machine(folder: Path, store: Store) -> Iterator[Machine]:
    made = Machine(folder)
    made.backend.secrets.read = store.read
    made.backend.secrets._pause_s = 0.01
    yield made
    store.open.set()
    made.backend.stop_all(0.0)
    made.backend.close()


def start(value: str, run: str = RUN) -> m.StartRuns:
    refs = (SecretRef("s-1", "token"),)
    one = m.StartRun(run, RunSpec(Resources(UNIT), value, secrets=refs))
    return m.StartRuns(HOST, 1, (one,))


def test_a_run_has_its_secret(machine, store, folder):
    machine.order(start("cat token"))
    (end,) = machine.hosts.next_report(m.RunsEnded).ends
    assert end.outcome.end == End.SUCCEEDED
    assert (folder / "runs" / RUN / "stdout").read_bytes() == b"the value"
    assert not (folder / "runs" / RUN / "token").exists()
    assert store.asked == [(JOB, ("s-1",))]
    assert b"the value" not in (folder / "journal").read_bytes()


def test_a_kill_and_a_list_come_after_the_launch_that_waits(machine, store):
    store.open.clear()
    machine.order(start("sleep 1000"), m.StopRuns(HOST, 1, (RUN,), 0.0))
    machine.order(m.ListRuns(HOST, 1, asked_at=5.0))
    store.open.set()
    listed = machine.hosts.next_report(m.RunsListed)
    while listed.asked_at != 5.0:
        listed = machine.hosts.next_report(m.RunsListed)
    assert {*listed.running, *(end.run for end in listed.ends)} == {RUN}


def test_a_secret_that_is_gone_ends_the_run_and_no_other(machine, store, folder):
    store.values.clear()
    machine.order(start("true"))
    (end,) = machine.hosts.next_report(m.RunsEnded).ends
    assert (end.outcome.end, end.outcome.reason) == (End.KILLED, SECRET_NOT_FOUND)
    assert not end.outcome.system
    assert "s-1" in end.outcome.message and "token" in end.outcome.message
    plain = m.StartRun("plain-0-1", RunSpec(Resources(UNIT), "true"))
    machine.order(m.StartRuns(HOST, 1, (plain,)))
    assert machine.hosts.next_report(m.RunsEnded).ends[0].outcome.end == End.SUCCEEDED


def test_a_store_that_is_down_gives_the_run_back(machine, store):
    store.down = "no answer"
    machine.order(start("true"))
    (end,) = machine.hosts.next_report(m.RunsEnded).ends
    assert (end.outcome.end, end.outcome.reason) == (End.KILLED, SECRETS_UNAVAILABLE)
    assert end.outcome.system and "no answer" in end.outcome.message
    store.down = ""
    machine.order(start("true", RUN[:-1] + "2"))
    assert machine.hosts.next_report(m.RunsEnded).ends[0].outcome.end == End.SUCCEEDED


def test_a_repeat_while_the_store_is_down_harms_no_run(machine, store):
    machine.order(start("sleep 1000"))
    assert machine.hosts.next_report(m.RunsStarted).runs == (RUN,)
    store.down = "no answer"
    machine.order(start("sleep 1000"))
    assert machine.hosts.next_report(m.RunsStarted).runs == (RUN,)


# ---- the queue alone ----


def test_what_waits_for_nothing_is_done_at_once_and_keeps_the_order_of_its_host(store):
    done: list[str] = []
    all_done = threading.Event()
    queue = SecretsFirst(store.read, failed=lambda: None)
    store.open.clear()

    def act(name: str, values: SecretValues) -> None:
        done.append(name)
        if name == "last":
            all_done.set()

    queue.then("a", lambda values: act("plain", values), wanted={})
    assert done == ["plain"]
    queue.then("a", lambda values: act("secret", values), wanted={JOB: {"s-1"}})
    queue.then("a", lambda values: act("last", values), wanted={})
    queue.then("b", lambda values: act("other host", values), wanted={})
    assert done == ["plain", "other host"]
    store.open.set()
    assert all_done.wait(60)
    assert done == ["plain", "other host", "secret", "last"]
    queue.close()


def test_an_order_that_raises_is_said_and_keeps_no_other(store, caplog):
    said, done = threading.Event(), threading.Event()
    queue = SecretsFirst(store.read, failed=said.set)

    def raises(values: SecretValues) -> None:
        raise RuntimeError("with b'the value' in it")

    queue.then("a", raises, wanted={JOB: {"s-1"}})
    queue.then("a", lambda values: done.set(), wanted={JOB: {"s-1"}})
    assert said.wait(60) and done.wait(60)
    queue.close()
    assert "an order of a failed: RuntimeError" in caplog.text and "the value" not in caplog.text


def test_a_store_that_raises_what_nobody_expects_gives_the_runs_back(store, caplog):
    """The thread goes on: all hosts would wait for it, and for good."""
    seen: list[SecretValues] = []
    done = threading.Event()

    def read(job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
        raise ValueError("with b'the value' in it")

    queue = SecretsFirst(read, failed=lambda: None, pause_s=0.0)
    queue.then("a", seen.append, wanted={JOB: {"s-1"}})
    queue.then("b", lambda values: done.set(), wanted={JOB: {"s-1"}})
    assert done.wait(60)
    queue.close()
    files, refusal = seen[0].of(start("true").runs[0])
    assert files == () and refusal is not None
    assert refusal.reason == SECRETS_UNAVAILABLE and "ValueError" in refusal.message
    assert "ValueError" in caplog.text
    assert "the value" not in refusal.message + caplog.text


def test_of_what_was_done_no_value_is_kept(store):
    queue, gone = SecretsFirst(store.read, failed=lambda: None), threading.Event()
    queue.then("a", lambda values: weakref.finalize(values, gone.set), wanted={JOB: {"s-1"}})
    assert gone.wait(60), "the thread that waits for the next order has it"
    queue.close()


def test_a_value_that_cannot_be_opened_fails_its_own_job_only(store):
    other = "7" + JOB[1:]
    seen: dict[str, SecretValues] = {}
    all_done = threading.Event()

    def read(job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
        found = store.read(job, wanted)
        if job == JOB:
            raise SecretUnreadable("secret s-1: damaged")
        return found

    def act(name: str, values: SecretValues) -> None:
        seen[name] = values
        if len(seen) == 2:
            all_done.set()

    queue = SecretsFirst(read, failed=lambda: None, pause_s=0.0)
    store.open.clear()  # both are looked for in one round, or in two: it must not matter
    queue.then("a", lambda values: act("bad", values), wanted={JOB: {"s-1"}, other: {"s-1"}})
    queue.then("b", lambda values: act("good", values), wanted={other: {"s-1"}})
    store.open.set()
    assert all_done.wait(60)
    for values in seen.values():
        assert values.of_jobs[other] == {"s-1": b"the value"}
    (refused,) = start("true").runs
    files, refusal = seen["bad"].of(refused)
    assert files == () and refusal is not None
    assert (refusal.reason, refusal.message) == (SECRETS_UNAVAILABLE, "secret s-1: damaged")
    queue.close()


def test_the_orders_of_other_hosts_do_not_pause_with_one_whose_values_cannot_be_read(store):
    """The pause is that of what lacks values, and of what is behind it at its host."""
    done: list[str] = []
    other_done = threading.Event()

    def read(job: str, wanted: Collection[str]) -> Mapping[str, bytes]:
        if job == JOB:
            raise SecretUnreadable("secret s-1: damaged")
        return store.read(job, wanted)

    def act(name: str, values: SecretValues) -> None:
        done.append(name)
        if name == "good":
            other_done.set()

    other = "7" + JOB[1:]
    queue = SecretsFirst(read, failed=lambda: None, pause_s=3600.0)
    queue.then("a", lambda values: act("bad", values), wanted={JOB: {"s-1"}})
    queue.then("a", lambda values: act("behind", values), wanted={other: {"s-1"}})
    queue.then("b", lambda values: act("good", values), wanted={other: {"s-1"}})
    assert other_done.wait(60)
    queue.close()
    assert done == ["good"]
