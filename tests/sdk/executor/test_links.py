"""Clients and their workers: what is sent, what comes back, and what becomes of who is lost."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.sdk.executor import packing, worker
from peloton.sdk.executor.errors import NotSendable, RemoteTraceback, TooLarge
from peloton.sdk.preemption import preemption_notice
from tests.sdk.executor.rig import WITHIN_S, gate, rig

pytest.importorskip("cloudpickle", reason="the extra `executor` is not installed")


def add(one: int, other: int) -> int:
    return one + other


def say(text: str) -> None:
    print(text)
    print(text.upper(), file=sys.stderr)


def locked() -> object:
    return threading.Lock()


def pid() -> int:
    return os.getpid()


def pass_through(there: Path, path: Path) -> str:
    """Say by the first gate that it is there, and wait at the second."""
    there.write_text("here")
    return path.read_text()


class Unmade(Exception):
    """Can be pickled, and not be made again."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def refuse(kind: Callable[..., BaseException], *args: Any) -> None:
    raise kind(*args)


class Counting:
    """Counts what it is told, and can go on elsewhere from where it was, with so many bytes."""

    def __init__(self, grows_by: int = 0) -> None:
        self.before = 0
        self.grows_by = grows_by
        self.grown = b""

    def __call__(self, there: Path, path: Path) -> tuple[int, int]:
        if self.before:
            return self.before, os.getpid()
        self.before = os.getpid()
        return self.before, len(pass_through(there, path))

    def checkpoint(self) -> Counting:
        self.grown = bytes(self.grows_by)
        return self


@pytest.mark.slow
def test_many_calls_of_two_workers(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        one.start(2)
        futures = one.submit(add, *((number, 1) for number in range(3000)))
        assert [future.result(WITHIN_S) for future in futures] == list(range(1, 3001))
        used = {future.place.worker.instance for future in futures}
        assert used == {0, 1}
        one.calls.close()
        one.owner.expect("left", "left")
        assert [process.wait(WITHIN_S) for process in one.processes] == [0, 0]


@pytest.mark.slow
def test_what_is_raised_has_its_traceback_and_what_is_printed_its_place(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        one.start()
        (future,) = one.submit(refuse, (KeyError, "nothing"))
        with pytest.raises(KeyError, match="nothing") as raised:
            future.result(WITHIN_S)
        assert isinstance(raised.value.__cause__, RemoteTraceback)
        assert "raise kind(*args)" in str(raised.value.__cause__)
        (future,) = one.submit(refuse, (Unmade, 1, 2))
        with pytest.raises(NotSendable, match=r"Unmade: exception of refuse cannot be unpickled"):
            future.result(WITHIN_S)
        first, second = one.submit(say, ("one",), ("second",))
        second.result(WITHIN_S)
        printed = one.said(name="stdout")
        assert printed[slice(*first.place.stdout)] == "one\n"
        assert printed[slice(*second.place.stdout)] == "second\n"
        assert one.said()[slice(*second.place.stderr)] == "SECOND\n"


@pytest.mark.slow
def test_a_result_that_is_too_large_or_cannot_be_sent_is_an_error_of_its_call(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as one:
        one.start()
        large, mean = one.submit(bytes, (packing.RESULT_BYTES_MAX + 1,), (3,))
        with pytest.raises(TooLarge, match=r"result of bytes: 64\.0 MiB .*RESULT_BYTES_MAX"):
            large.result(WITHIN_S)
        assert mean.result(WITHIN_S) == bytes(3)
        (future,) = one.submit(locked, ())
        with pytest.raises(NotSendable, match="result of locked cannot be pickled"):
            future.result(WITHIN_S)


def test_arguments_that_are_too_large_or_cannot_be_sent_are_refused_at_once() -> None:
    function = packing.FunctionPacker().of(add)
    with pytest.raises(TooLarge, match=r"arguments of add: .*ARGUMENTS_BYTES_MAX"):
        packing.pack_arguments(function, (bytes(packing.ARGUMENTS_BYTES_MAX),), kwargs={})
    with pytest.raises(NotSendable, match="arguments of add cannot be pickled"):
        packing.pack_arguments(function, (threading.Lock(),), kwargs={})


@pytest.mark.slow
def test_a_call_that_waits_behind_a_long_one_is_given_to_a_worker_without_any(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as one:
        path, there = gate(tmp_path), gate(tmp_path, "there")
        one.start()
        for future in one.submit(add, *((number, 1) for number in range(200))):
            future.result(WITHIN_S)  # calls are short: many are sent at a time
        quick = one.call(pid, number=999)  # behind it several are sent at a time
        long = one.call(pass_through, there, path, number=1000)
        behind = [one.call(pid, number=number) for number in range(1001, 1011)]
        one.calls.add([quick, long, *behind])
        there.read_text()  # the long one runs
        (link,) = one.server.links.values()
        assert len(link.held) > 1, "those behind it are with its worker"
        (other,) = one.start()
        assert {call.future.result(WITHIN_S) for call in behind} == {other.pid}
        path.write_text("on")
        assert long.future.result(WITHIN_S) == "on"


@pytest.mark.slow
def test_the_call_that_ends_its_worker_is_found_among_others(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        one.start()
        for future in one.submit(add, *((number, 1) for number in range(200))):
            future.result(WITHIN_S)
        quick = one.call(add, 0, 1, number=1000)  # behind it several are sent at a time
        bad = one.call(os._exit, 9, number=1001)
        good = [one.call(add, number, 1, number=number) for number in range(1002, 1012)]
        one.calls.add([quick, bad, *good])
        assert one.owner.expect("lost") == [("lost", 0, None)], "one of several"
        assert bad.is_alone and good[0].is_alone and not good[-1].is_alone
        one.start()
        assert one.owner.expect("lost") == [("lost", 1, 1001)], "it was alone"
        one.start()
        assert [call.future.result(WITHIN_S) for call in good] == [*range(1003, 1013)]


@pytest.mark.slow
def test_a_preempted_call_goes_on_elsewhere_from_its_checkpoint(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        path, there = gate(tmp_path), gate(tmp_path, "there")
        (first,) = one.start()
        (future,) = one.submit(Counting(packing.FUNCTION_BYTES_MAX), (there, path))
        there.read_text()
        (tmp_path / "0" / "preempted").write_text("others need the room")
        first.send_signal(signal.SIGTERM)
        assert one.owner.expect("lost") == [("lost", 0, None)]
        assert first.wait(WITHIN_S) == worker.EXIT_LEFT
        assert (tmp_path / "0" / "checkpointed").exists()
        (second,) = one.start()
        assert future.result(WITHIN_S) == (first.pid, second.pid)


@pytest.mark.slow
def test_a_checkpoint_that_is_too_large_is_an_error_of_its_call(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        path, there = gate(tmp_path), gate(tmp_path, "there")
        (first,) = one.start()
        (future,) = one.submit(Counting(packing.CHECKPOINT_BYTES_MAX), (there, path))
        there.read_text()
        (tmp_path / "0" / "preempted").write_text("others need the room")
        first.send_signal(signal.SIGTERM)
        limit = r"checkpoint of Counting: 64\.0 MiB .*CHECKPOINT_BYTES_MAX"
        with pytest.raises(TooLarge, match=limit):
            future.result(WITHIN_S)
        assert one.calls.wait_finished(WITHIN_S)
        assert first.wait(WITHIN_S) == worker.EXIT_LEFT


def test_a_checkpoint_can_be_called_and_sent() -> None:
    with pytest.raises(NotSendable, match="checkpoint of add: 3 is not callable"):
        packing.pack_checkpoint("add", 3)
    with pytest.raises(NotSendable, match="checkpoint of add cannot be pickled"):
        packing.pack_checkpoint("add", threading.Lock().acquire)


@pytest.mark.slow
def test_a_preempted_call_without_a_checkpoint_runs_again_uncounted(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        path, there = gate(tmp_path), gate(tmp_path, "there")
        (first,) = one.start()
        (future,) = one.submit(pass_through, (there, path))
        there.read_text()
        (tmp_path / "0" / "preempted").write_text("others need the room")
        first.send_signal(signal.SIGTERM)
        assert one.owner.expect("lost") == [("lost", 0, None)]
        one.start()
        there.read_text()
        path.write_text("on")
        assert future.result(WITHIN_S) == "on"


def notices(there: Path) -> str:
    with preemption_notice() as notice:
        there.write_text("here")
        notice.wait()
    return notice.reason


@pytest.mark.slow
def test_a_call_that_takes_the_notice_itself_is_answered_and_its_worker_leaves(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as one:
        there = gate(tmp_path, "there")
        (first,) = one.start()
        (future,) = one.submit(notices, (there,))
        there.read_text()
        (tmp_path / "0" / "preempted").write_text("others need the room")
        first.send_signal(signal.SIGTERM)
        assert future.result(WITHIN_S) == "others need the room"
        assert first.wait(WITHIN_S) == worker.EXIT_LEFT
        (other,) = one.submit(add, (1, 2))
        assert one.owner.expect("lost") == [("lost", 0, None)], "before it had the other call"
        one.start()
        assert other.result(WITHIN_S) == 3


@pytest.mark.slow
def test_a_call_of_a_stopped_worker_counts_as_lost(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        path, there = gate(tmp_path), gate(tmp_path, "there")
        (first,) = one.start()
        (future,) = one.submit(Counting(), (there, path))
        there.read_text()
        first.send_signal(signal.SIGTERM)
        assert one.owner.expect("lost") == [("lost", 0, 0)]
        with pytest.raises(RuntimeError, match="its worker is lost"):
            future.result(WITHIN_S)


@pytest.mark.slow
def test_a_worker_ends_when_it_is_idle_and_when_its_client_is_gone(tmp_path: Path) -> None:
    with rig(tmp_path, idle_s=0.01) as one:
        (idle,) = one.start()
        one.owner.expect("left")
        assert idle.wait(WITHIN_S) == 0
    other = tmp_path / "other"
    other.mkdir()
    with rig(other) as one:
        path, there = gate(other), gate(other, "there")
        (left_alone,) = one.start()
        one.submit(pass_through, (there, path))
        there.read_text()
        (link,) = one.server.links.values()
        cut(link._connection.fileno())
        assert left_alone.wait(WITHIN_S) == worker.EXIT_GONE, "in the middle of its call"
        assert "the client of this worker is gone" in one.said()


def cut(descriptor: int) -> None:
    """End a connection as the end of its process would."""
    with socket.socket(fileno=os.dup(descriptor)) as opened:
        opened.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_named_executors_worker_tells_the_next_client_what_it_has_answered(
    tmp_path: Path,
) -> None:
    with rig(tmp_path, keep_s=3600.0) as one:
        path, there = gate(tmp_path), gate(tmp_path, "there")
        (process,) = one.start()
        (done,) = one.submit(add, (1, 2))
        assert done.result(WITHIN_S) == 3
        long = one.call(pass_through, there, path, number=7)
        one.calls.add([long])
        there.read_text()
        before = one.server
        one.client()
        orphans = {
            0: one.call(add, 1, 2, number=0),
            7: one.call(pass_through, there, path, number=7),
        }
        one.owner.orphans.update(orphans)
        one.calls.adopt([*orphans.values()])
        for call in orphans.values():
            call.begun = call.future.set_running_or_notify_cancel()
        (link,) = before.links.values()
        cut(link._connection.fileno())
        before.calls.close(cancel=True)
        before.close()
        one.open()
        assert one.owner.expect("arrived") == [("arrived", 0, [0, 7])]
        assert orphans[0].future.result(WITHIN_S) == 3, "from its file: it is not run again"
        path.write_text("on")
        assert orphans[7].future.result(WITHIN_S) == "on", "it went on without a client"
        assert process.poll() is None
