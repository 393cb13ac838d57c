"""The door of a daemon: whoever asks there is answered.

Must not need a journal: behind the door stands a shard that says what a test tells it to.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.inspection import InspectionRows
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.shell import Shell, begin_shell
from peloton.runtime.shells.shell_messages import Mail, reply_addresses, resolve
from peloton.runtime.simulation.stepper import Stepper
from peloton.runtime.vocabulary import Unavailable, key
from tests.toy.kinds import KINDS, SIZES
from tests.toy.messages import Scrap

X = key("note", "x")


class Says(Shell):
    """A shard with one answer to everything."""

    def __init__(self, stepper: Stepper, said: Any) -> None:
        super().__init__("says", stepper)
        self.said = said

    def handle(self, letter: Any) -> None:
        assert isinstance(letter, Mail)
        for ask in reply_addresses(letter.envelopes):
            resolve(ask, self.said)

    def failed(self, error: BaseException) -> None:
        raise error


class Door:
    """A region in which `X` lives with a shard that says that."""

    def __init__(self, said: Any) -> None:
        sharding = Sharding(KINDS, SIZES)
        self.stepper = Stepper(1)
        self.region = Region(KINDS, sharding=sharding, sizes=SIZES)
        self.region.place(sharding.shard_of(X), begin_shell(Says(self.stepper, said)))

    def answer(self, asked: Future[Any]) -> Any:
        self.stepper.run(asked.done)
        return asked.result()


def test_an_answer_that_cannot_be_read_is_unavailable_and_says_why() -> None:
    door = Door(InspectionRows(((1.0, b"a row of a later version"),)))
    found = door.answer(door.region.story(X))
    assert isinstance(found, Unavailable)
    assert "ValidationError" in found.text


def test_what_is_unavailable_stays_so() -> None:
    door = Door(Unavailable("is moving"))
    assert door.answer(door.region.story(X)) == Unavailable("is moving")


def test_a_machine_of_a_daemon_stands_beside_a_kind_of_the_same_name() -> None:
    """`note/local` is every daemon's own, `note/x` an actor in the shard of its key."""
    door, local = Door("the owner"), key("note", "local")
    door.region.on_service = lambda prefix, machine, *, outward: begin_shell(machine)
    door.region.register_service(local, Says(door.stepper, "the daemon's own"))
    assert door.answer(door.region.ask(local, Scrap())) == "the daemon's own"
    assert door.answer(door.region.ask(X, Scrap())) == "the owner"
