"""What the shells rely on in pykka: the three hooks, and how its loop treats what is raised.

A pykka that changes any of this must fail here, not in a daemon.
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


class Ear(Shell):
    """Keeps what it hears."""

    def __init__(self, driver: Any) -> None:
        super().__init__("ear", driver)
        self.heard: list[Any] = []
        self.errors: list[Exception] = []

    def handle(self, letter: Any) -> None:
        if letter == "bad":
            raise ValueError(letter)
        self.heard.append((letter, self.actor_inbox.at_end()))

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


def begin(stepper: Stepper) -> Ear:
    Ear.start(stepper)
    ear = stepper.shells[-1]
    assert isinstance(ear, Ear)
    return ear


def test_pykka_is_older_than_five():
    assert int(version("pykka").split(".")[0]) < 5


def test_pykka_takes_its_inbox_outside_of_its_try():
    source = inspect.getsource(pykka.Actor._actor_loop_running)
    assert source.index("actor_inbox.get()") < source.index("try:")


def test_a_grant_yields_so_many_letters_and_leads_out_of_the_loop():
    stepper = Stepper(1)
    ear = begin(stepper)
    for number in range(5):
        send(ear.ref, number)
    assert ear.heard == []
    ear.grant(2)
    assert ear.heard == [(0, False), (1, True)]
    ear.grant(10)
    assert ear.heard[2:] == [(2, False), (3, False), (4, True)]
    ear.grant(1)
    ear.ref.stop(block=False)
    ear.grant(1)
    assert not ear.ref.is_alive()


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
    ear = begin(Stepper(1))
    send(ear.ref, "bad")
    send(ear.ref, "good")
    ear.grant(2)
    assert [letter for letter, _ in ear.heard] == ["good"]
    assert [str(error) for error in ear.errors] == ["bad"]
    assert ear.ref.is_alive()
    ear.ref.stop(block=False)
    ear.grant(1)


def test_nobody_is_told_after_the_end():
    ear = begin(Stepper(1))
    send(ear.ref, "last")
    ear.ref.stop(block=False)
    send(ear.ref, "too late")
    ear.grant(9)
    assert [letter for letter, _ in ear.heard] == ["last"]
    assert not send(ear.ref, "never")
