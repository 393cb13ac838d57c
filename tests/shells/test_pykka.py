"""What the shells rely on in pykka: the three hooks, and how its loop handles exceptions.

A version of pykka that changes any of this must fail here, not in a daemon.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

import pykka
import pytest

from peloton.runtime.shells.shell import Inbox, NotGranted, Shell
from peloton.runtime.shells.shell_messages import send
from peloton.runtime.simulation.stepper import Stepper


class Recorder(Shell):
    """Keeps the messages it receives."""

    def __init__(self, driver: Any) -> None:
        super().__init__("recorder", driver)
        self.received: list[Any] = []
        self.errors: list[Exception] = []

    def handle(self, message: Any) -> None:
        if message == "bad":
            raise ValueError(message)
        self.received.append((message, self.actor_inbox.at_end()))

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


def begin(stepper: Stepper) -> Recorder:
    Recorder.start(stepper)
    recorder = stepper.shells[-1]
    assert isinstance(recorder, Recorder)
    return recorder


def test_pykka_is_older_than_five():
    assert int(version("pykka").split(".")[0]) < 5


def test_pykka_takes_its_inbox_outside_of_its_try():
    source = inspect.getsource(pykka.Actor._actor_loop_running)
    assert source.index("actor_inbox.get()") < source.index("try:")


def test_a_grant_yields_so_many_messages_and_leaves_the_loop():
    stepper = Stepper(1)
    recorder = begin(stepper)
    for number in range(5):
        send(recorder.ref, number)
    assert recorder.received == []
    recorder.grant(2)
    assert recorder.received == [(0, False), (1, True)]
    recorder.grant(10)
    assert recorder.received[2:] == [(2, False), (3, False), (4, True)]
    recorder.grant(1)
    recorder.ref.stop(block=False)
    recorder.grant(1)
    assert not recorder.ref.is_alive()


def test_an_inbox_without_a_grant_raises():
    inbox = Inbox()
    inbox.put(1)
    with pytest.raises(NotGranted):
        inbox.get()
    inbox.granted = 2
    assert inbox.get() == 1
    with pytest.raises(NotGranted):
        inbox.get()


def test_what_a_shell_raises_never_reaches_pykka():
    recorder = begin(Stepper(1))
    send(recorder.ref, "bad")
    send(recorder.ref, "good")
    recorder.grant(2)
    assert [message for message, _ in recorder.received] == ["good"]
    assert [str(error) for error in recorder.errors] == ["bad"]
    assert recorder.ref.is_alive()
    recorder.ref.stop(block=False)
    recorder.grant(1)


def test_nothing_is_received_after_the_end():
    recorder = begin(Stepper(1))
    send(recorder.ref, "last")
    recorder.ref.stop(block=False)
    send(recorder.ref, "too late")
    recorder.grant(9)
    assert [message for message, _ in recorder.received] == ["last"]
    assert not send(recorder.ref, "never")
