"""Agents of one host name one after the other, and another daemon subscribes: no run begins twice.

The host is the actor itself, the links are two conversations.
"""

from __future__ import annotations

from peloton.actors.host import messages as m
from peloton.actors.host.kind import kind
from peloton.actors.host.stages import HostStates, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End
from peloton.backends.port import Report
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message
from tests.backends.mesos.bench import BACKEND, HOST, JOB, Talk, name, start
from tests.backends.mesos.words import agent, offer, reconciled, status

KIND = kind(8)
CROWD = Key(f"task/{JOB}/0")
SPEC = start(0).spec


class Story:
    """A host, and the link through which its orders go for now."""

    def __init__(self, talk: Talk) -> None:
        self.now = 10.0
        self.talk = talk
        self.host: Host | None = None
        self.ended: list[End] = []

    def task(self, message: Message) -> None:
        """The task of the first instance says this."""
        self._take(message, CROWD, Bits.of(0))
        self.carry()

    def carry(self) -> None:
        """All that the link has to tell, and what comes of it, until nobody has anything to say."""
        while self.talk.reports:
            reports, self.talk.reports = self.talk.reports, []
            for to, report in reports:
                assert to == HOST
                self._take(report, BACKEND)

    def _take(self, message: Message | Report, sender: Key, members: Bits | None = None) -> None:
        self.now += 1.0
        at = At(now=self.now, key=HOST, sender=sender, members=members, epoch=1, level=1)
        turn: TurnOutcome = take_turn(KIND, self.host, message=message, at=at)
        self.host = turn.state
        for send in turn.sends:
            if send.to == BACKEND:
                self.talk.order(send.message)  # type: ignore[arg-type]
            elif isinstance(send.message, t.Ended):
                self.ended.append(send.message.outcome.end)

    @property
    def phase(self) -> RunPhase:
        """Of the run."""
        assert self.host is not None
        return self.host.runs[name(0)].phase


def begun() -> Story:
    """The run is accepted, its launch at agent A went out, and nothing was heard of it."""
    story = Story(Talk())
    story.talk.subscribe(agent("A"))
    story.carry()
    story.talk.offer(offer("OA", "A"))
    story.task(m.Launch(1, SPEC))
    assert story.talk.launched() == [[name(0)]] and story.phase == RunPhase.ACCEPTED
    return story


def test_a_run_that_may_be_at_an_agent_out_of_reach_is_not_begun_at_the_next_one() -> None:
    story = begun()
    story.talk = Talk()  # of another daemon; the agent is out of reach, so nobody speaks of the run
    story.talk.subscribe(agent("B"))
    story.talk.offer(offer("OB", "B"))
    story.carry()
    assert story.talk.launched() == [] and story.ended == [End.LOST]
    assert story.host is not None and story.host.state == HostStates.UP
    story.task(m.Launch(2, SPEC))
    assert story.talk.launched() == [[name(0, 2)]], "what comes next is begun"
    story.talk.agents(agent("B"), agent("A"))
    story.talk.update(status(name(0), "RUNNING", "A", uuid="u"))
    story.carry()
    assert [task for task, _ in story.talk.killed()] == [name(0)]


def test_a_question_that_overtakes_the_news_of_the_agent_begins_nothing_twice() -> None:
    """The host asks by itself, before it has heard that there is another agent."""
    story = begun()
    story.talk = Talk()
    story.talk.subscribe(agent("B"))
    story.talk.offer(offer("OB", "B"))
    story.talk.clear().order(m.ListRuns(HOST, 1, 99.0))
    story.now = 100.0
    story.carry()
    assert story.talk.launched() == [] and story.ended == [End.LOST]


def test_an_order_for_the_agent_before_is_not_obeyed() -> None:
    """It was accepted when that was the host; another link may have passed it on already."""
    talk = Talk.begun(agent("B"))
    talk.offer(offer("OB", "B"))
    talk.order(m.StartRuns(HOST, 1, (start(0),), "", "A"))
    assert talk.launched() == [] and talk.told(m.BackendUp)
    talk.order(m.StartRuns(HOST, 1, (start(0),), "", "B"))
    assert talk.launched() == [[name(0)]]


def test_an_order_that_was_lost_is_given_again_at_the_same_agent_after_a_change() -> None:
    story = Story(Talk())
    story.talk.subscribe(agent("A"))
    story.carry()
    story.task(m.Launch(1, SPEC))
    assert story.talk.launched() == [], "it waits for an offer"
    story.talk = Talk()
    story.talk.subscribe(agent("A"))
    story.talk.offer(offer("OA", "A"))
    story.carry()
    assert story.talk.launched() == [[name(0)]] and story.ended == []


def test_agents_that_take_turns_have_no_run_twice() -> None:
    """The run is launched at B before the host has heard of B; then A is the host again."""
    story = begun()
    story.talk.update(status(name(0), "FINISHED", "A", uuid="e"))
    story.carry()
    story.talk.agents(agent("B"))
    story.talk.offer(offer("OB", "B"))
    reports, story.talk.reports = story.talk.reports, []
    story.talk.clear()
    story.task(m.Launch(2, SPEC))
    assert story.talk.launched() == [], "B is not whom the host was compared with"
    story.talk.reports = [*reports, *story.talk.reports]
    story.carry()
    story.talk = Talk()
    story.talk.subscribe(agent("A"))
    story.talk.offer(offer("OA", "A"))
    story.carry()
    story.talk.update(reconciled(name(0, 2), "GONE", "A"))
    story.carry()
    assert story.talk.launched() == [] and story.ended == [End.SUCCEEDED, End.LOST]


def test_what_is_yet_to_begin_at_the_agent_before_is_not_begun_at_the_next_one() -> None:
    """It is on the list of the next one, which knows where it is; whoever knows less comes then."""
    story = begun()
    story.talk.agents(agent("A", active=False), agent("B"))
    story.carry()
    story.talk.update(reconciled(name(0), "STAGING", "A"))
    story.carry()
    assert story.host is not None and story.host.incarnation == "B" and story.ended == []
    story.talk = Talk()  # of another daemon, at a master that has failed over; A is out of reach
    story.talk.subscribe(agent("B"))
    story.talk.offer(offer("OB", "B"))
    story.carry()
    story.talk.update(reconciled(name(0), "GONE", "B"))
    story.carry()
    assert story.talk.launched() == [] and story.ended == [End.LOST]
