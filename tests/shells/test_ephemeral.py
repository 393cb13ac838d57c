"""The shell of an ephemeral service: one call for all that came, and a reset when it raises."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.ephemeral import CHECK_AGAIN_S, EphemeralShell
from peloton.runtime.shells.shell_messages import Mail, Renamed, ShellFailed, send
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import Unavailable, key
from tests.shells.stage import NOTE, Desk, Stage
from tests.toy import messages as w

ECHO = key("echo", 0)


class Echo:
    """Answers the sum of all it heard since it was reset, and tells a note; 13 makes it raise."""

    own_thread = False

    def __init__(self) -> None:
        self.wake_at: float | None = None
        self.calls: list[int] = []  # how much came in each call
        self.sum = 0
        self.resets = 0
        self.names: list[str] = []
        self.breaks_for_good = False

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope | Reply]:
        self.calls.append(len(envelopes))
        self.wake_at = None
        for envelope in envelopes:
            message = envelope.message
            assert isinstance(message, w.Add)
            if message.amount == 13:
                raise ValueError("13")
            self.sum += message.amount
            self.wake_at = now + 5.0
            yield Envelope(NOTE, message, sender=ECHO)
            if envelope.reply_to is not None:
                yield Reply(envelope.reply_to, w.Total(self.sum))

    def reset(self) -> None:
        if self.breaks_for_good:
            raise OSError("cannot be reset")
        self.sum, self.wake_at = 0, None
        self.resets += 1

    def rename(self, member: str, *, number: int, count: int) -> None:
        self.names.append(f"{member} {number + 1}/{count}")


class Scene:
    """The shell of an echo, and a desk where the note's shard would be."""

    def __init__(self, echo: Echo | None = None) -> None:
        self.stage = Stage()
        self.driver = self.stage.driver
        self.echo = echo or Echo()
        self.shell = begun(
            EphemeralShell(
                "echo",
                self.driver,
                service=self.echo,
                region=self.stage.region,
                root=self.stage.root.ref,
            )
        )
        self.house = begun(Desk("house", self.driver))
        self.stage.region.routes.set_shard(self.stage.shard, self.house.ref)
        self.driver.run()
        self.echo.calls = []  # it is called once when it begins

    def send(self, amount: int) -> Future[Any]:
        answer: Future[Any] = Future()
        send(self.shell.ref, Mail([Envelope(ECHO, w.Add(amount), reply_to=answer)]))
        return answer

    def told(self) -> list[Any]:
        """What the note was told."""
        return [each.message for mail in self.house.taken() for each in mail.envelopes]

    def doubt(self, current: bool) -> None:
        """The session of this daemon is in doubt, or sure again."""
        self.stage.region.routes.membership_status = MembershipStatus("m1", current, None, "")


def test_all_that_came_is_one_call_and_what_it_says_is_delivered():
    scene = Scene()
    answers = [scene.send(amount) for amount in (1, 2, 3)]
    scene.driver.run()
    assert scene.echo.calls == [3]
    assert [answer.result(0) for answer in answers] == [w.Total(1), w.Total(3), w.Total(6)]
    assert scene.told() == [w.Add(1), w.Add(2), w.Add(3)]


class Requester(Echo):
    """Tells the note again what it asked, whenever that may arrive."""

    def hurry(self) -> None:
        self.sum += 1


def test_who_makes_requests_of_its_own_repeats_them_once_they_may_arrive():
    scene = Scene(Requester())
    scene.stage.region.routes.requesting.append(scene.shell.ref)
    scene.stage.region.peer_reachable()
    scene.driver.run()
    assert scene.echo.sum == 1 and scene.echo.calls == [0], "it was called, to say so"


def test_a_machine_that_raises_is_reset_and_nothing_of_that_call_is_said():
    scene = Scene()
    scene.send(5)
    scene.driver.run()
    scene.told()
    answers = [scene.send(amount) for amount in (1, 13, 2)]
    scene.driver.run()
    assert all(isinstance(answer.result(0), Unavailable) for answer in answers)
    assert scene.told() == [], "not even what it said before it raised"
    assert scene.echo.resets == 1
    assert scene.stage.root.taken() == [ShellFailed("service-echo", "ValueError: 13", fatal=False)]

    answer = scene.send(2)
    scene.driver.run()
    assert answer.result(0) == w.Total(2), "it goes on, and knows nothing of before"


def test_a_machine_that_cannot_be_reset_ends_the_daemon():
    scene = Scene()
    scene.echo.breaks_for_good = True
    answer = scene.send(13)
    scene.driver.run()
    assert isinstance(answer.result(0), Unavailable)
    assert scene.stage.root.taken() == [
        ShellFailed("service-echo", "OSError: cannot be reset", fatal=True)
    ]


def test_it_is_called_when_it_wants_to_be_woken():
    scene = Scene()
    scene.send(1)
    scene.driver.run()
    scene.driver.after(4.9)
    assert scene.echo.calls == [1]
    scene.driver.after(0.2)
    assert scene.echo.calls == [1, 0]


def test_one_that_acts_on_the_world_waits_while_the_session_is_in_doubt():
    scene = Scene()
    scene.shell.outward, scene.shell.service_mail_max = True, 2
    scene.doubt(current=False)
    answers = [scene.send(amount) for amount in (1, 2, 3)]
    scene.driver.run()
    assert scene.echo.calls == [] and scene.shell.dropped == 1, "more than two are not kept"
    scene.driver.after(CHECK_AGAIN_S)
    assert scene.echo.calls == []
    scene.doubt(current=True)
    scene.driver.after(CHECK_AGAIN_S)
    assert scene.echo.calls == [2]
    assert [answer.result(0) for answer in answers[:2]] == [w.Total(1), w.Total(3)]
    assert scene.told() == [w.Add(1), w.Add(2)]


def test_one_that_does_not_act_on_the_world_goes_on_meanwhile():
    scene = Scene()
    scene.doubt(current=False)
    answer = scene.send(1)
    scene.driver.run()
    assert answer.result(0) == w.Total(1)


def test_a_new_name_is_told_once_and_mail_for_the_old_one_is_dropped():
    scene = Scene()
    scene.shell.outward = True
    scene.doubt(current=False)
    for letter in (Renamed("m1", 0, 2), Renamed("m1", 0, 2)):
        send(scene.shell.ref, letter)
    scene.send(1)
    scene.driver.run()
    send(scene.shell.ref, Renamed("m2", 1, 2))
    kept = scene.send(2)
    scene.driver.run()
    scene.doubt(current=True)
    scene.driver.after(CHECK_AGAIN_S)
    assert scene.echo.names == ["m1 1/2", "m2 2/2"]
    assert kept.result(0) == w.Total(2)
    assert scene.told() == [w.Add(2)], "the other was an order to a member that is no more"


def test_another_number_under_the_same_name_keeps_the_mail():
    scene = Scene()
    scene.shell.outward = True
    scene.doubt(current=False)
    send(scene.shell.ref, Renamed("m1", 0, 1))
    kept = scene.send(1)
    send(scene.shell.ref, Renamed("m1", 0, 2))
    scene.driver.run()
    scene.doubt(current=True)
    scene.driver.after(CHECK_AGAIN_S)
    assert scene.echo.names == ["m1 1/1", "m1 1/2"]
    assert kept.result(0) == w.Total(1)


def test_what_it_says_to_nobody_is_no_failure():
    scene = Scene()
    scene.stage.region.routes.set_shard(scene.stage.shard, None)
    answer = scene.send(1)
    scene.driver.run()
    assert answer.result(0) == w.Total(1)
    assert scene.stage.root.taken() == []
