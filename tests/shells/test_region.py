"""The region of a daemon: every call is answered.

The only shard gives the answer that a test sets.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.reading.inspection import InspectionRows
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.shell import Shell, begin_shell
from peloton.runtime.shells.shell_messages import Mail, reply_addresses, resolve
from peloton.runtime.simulation.stepper import Stepper
from peloton.runtime.vocabulary import Unavailable, key
from tests.toy.kinds import KINDS, SIZES
from tests.toy.messages import Scrap

X = key("note", "x")


class FixedAnswer(Shell):
    """A shard with one answer to everything."""

    def __init__(self, stepper: Stepper, answer: Any) -> None:
        super().__init__("fixed-answer", stepper)
        self.answer = answer

    def handle(self, message: Any) -> None:
        assert isinstance(message, Mail)
        for reply_to in reply_addresses(message.envelopes):
            resolve(reply_to, self.answer)

    def failed(self, error: BaseException) -> None:
        raise error


class OneShard:
    """A region in which `X` lives in a shard with this answer."""

    def __init__(self, answer: Any) -> None:
        sharding = Sharding(KINDS, SIZES)
        self.stepper = Stepper(1)
        self.region = Region(KINDS, codec=Codec(KINDS), sharding=sharding, sizes=SIZES)
        self.region.set_shard(sharding.shard_of(X), begin_shell(FixedAnswer(self.stepper, answer)))

    def answer(self, call: Future[Any]) -> Any:
        self.stepper.run(call.done)
        return call.result()


def test_an_answer_that_cannot_be_read_is_unavailable_with_the_reason() -> None:
    scene = OneShard(InspectionRows(((1.0, b"a row of a later version"),)))
    found = scene.answer(scene.region.story(X))
    assert isinstance(found, Unavailable)
    assert "ValidationError" in found.text


def test_what_is_unavailable_stays_so() -> None:
    scene = OneShard(Unavailable("is moving"))
    assert scene.answer(scene.region.story(X)) == Unavailable("is moving")


def test_a_local_service_and_a_kind_may_share_a_prefix() -> None:
    """`note/local` is a service of every daemon, `note/x` an actor in the shard of its key."""
    scene, local = OneShard("the owner"), key("note", "local")
    scene.region.on_service = lambda prefix, service, *, outward: begin_shell(service)
    scene.region.register_service(local, FixedAnswer(scene.stepper, "the daemon's own"))
    assert scene.answer(scene.region.ask(local, Scrap())) == "the daemon's own"
    assert scene.answer(scene.region.ask(X, Scrap())) == "the owner"
