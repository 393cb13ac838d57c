"""A daemon that may be subscribed: a real conversation, and the link that carries it.

As `peloton/backends/mesos/backend.py` does it, without threads: what the conversation wants sent
goes on the stream, the master is asked for its agents where that asks, and what is due is done
while there is a stream.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.backends.mesos.conversation import Conversation
from peloton.backends.mesos.events import agents_of, is_of_an_executor
from peloton.backends.mesos.master_list import AskTimes, MasterList
from peloton.backends.mesos.runs.keeper_tasks import KeeperProgram
from peloton.backends.port import Order
from peloton.runtime.core.turning.envelope import Envelope
from tests.backends.mesos.bench import BACKEND
from tests.backends.mesos.simulated.checks import Checks
from tests.backends.mesos.simulated.streams import Stream
from tests.backends.mesos.words import ROLE, Json
from tests.servers.mesos_model.answers import Answers
from tests.servers.mesos_model.master import Master
from tests.servers.mesos_model.times import Times

NOTICE_S = 6.0
"""The longest time until the end of a stream is noticed."""


class Daemon:
    """One daemon. `tell` carries reports away, `checks` see all."""

    def __init__(
        self,
        times: Times,
        master: Master,
        *,
        tell: Callable[[Daemon, Envelope], None],
        checks: Checks,
    ) -> None:
        self._times, self._master, self._tell, self._checks = times, master, tell, checks
        self._answers = Answers(master, checks.broken)
        self._lives = 0
        self.begin()

    def begin(self) -> None:
        """Its process begins: nothing is known."""
        if self._lives:
            self._checks.notices(self)
        self._lives += 1
        self.life = object()
        number = 1_000_000 * self._lives
        self.talk = Conversation("east", role=ROLE, backend=BACKEND, first_number=number)
        self.talk.agents.keeper = KeeperProgram("exec keeper")
        self.stream: Stream | None = None
        self.subscribed = False
        self._ask_times = AskTimes()

    # ---- the subscription ----

    def subscribe(self, overtaken: Callable[[Stream], None]) -> None:
        """Ask for one, which ends the one before."""
        if self.stream is not None or not self._master.here:
            return
        self._times.note(f"subscribes ({'fresh' if self.talk.agents.by_host == {} else 'again'})")
        self.stream = stream = Stream(self._times, lambda event: self._heard(stream, event))
        former = self._master.subscribe(stream)
        if former is not None:
            overtaken(former)

    def ended(self, stream: Stream, *, quiet: bool) -> None:
        """The stream is over, which is noticed some time later; `quiet`: no host is told."""
        self._times.later(self._times.upto(NOTICE_S), lambda: self._notice(stream, quiet))

    def _notice(self, stream: Stream, quiet: bool) -> None:
        if self.stream is not stream:
            return
        self._times.note("notices that its stream is over")
        self.stream, self.subscribed = None, False
        self.talk.disconnected("overtaken" if quiet else "gone")
        self._checks.notices(self)
        self._take(quiet=quiet)

    # ---- what is said ----

    def order(self, order: Order) -> None:
        """A host orders this."""
        self._checks.delivered(self, order)
        self.talk.ordered(order, self._times.now)
        self._take()

    @property
    def wake_at(self) -> float:
        """When it has something to do by itself."""
        if self.stream is None:
            return float("inf")
        found = self.talk.wake_at
        looks = self._ask_times.next_at if self.subscribed else float("inf")
        return looks if found is None else min(found, looks)

    def due(self) -> None:
        """Do that."""
        now = self._times.now
        self.talk.due(now)
        self._take()
        if self.subscribed and self._ask_times.is_due(now):
            listed, talk = self._listed(), self.talk
            self._times.later(self._times.upto(1.5), lambda: self._look(talk, listed))

    def _look(self, talk: Conversation, listed: MasterList) -> None:
        if talk is self.talk and self.stream is not None:
            self.talk.told_agents(listed, self._times.now)
            self._take()

    def _listed(self) -> MasterList:
        number = self._ask_times.asked(self._times.now)
        return MasterList(self._master.listed_agents(), self._master.listed_executors(), number)

    def _heard(self, stream: Stream, event: Json) -> None:
        if self.stream is not stream:
            return
        now, kind, listed = self._times.now, event["type"], None
        if kind == "SUBSCRIBED":
            self._ask_times.again(now)
            self.subscribed = True
        if kind == "SUBSCRIBED" or self._names_strangers(event):
            listed = self._listed()
        if kind == "SUBSCRIBED":
            self.talk.subscribed(now)
        if listed is not None:
            self.talk.told_agents(listed, now)
        self._checks.heard(self, event)
        self.talk.heard(event, now)
        if kind == "FAILURE" and not is_of_an_executor(event):
            self._ask_times.soon(now)
        self._take()

    def _names_strangers(self, event: Json) -> bool:
        found = agents_of(event) if event["type"] in ("OFFERS", "UPDATE") else ()
        if all(self.talk.agents.at(one) is not None for one in found):
            return False
        return self._ask_times.may_ask(self._times.now)

    def _take(self, *, quiet: bool = False) -> None:
        calls, reports = self.talk.take()
        if self.talk.unreadable.count:
            self._checks.broken(f"cannot read: {self.talk.unreadable.problem(self._times.now)}")
        stream = self.stream
        for call in calls:
            self._checks.called(self, call)
            if stream is not None and stream.open:
                stream.calls.send(lambda call=call: self._answers.call(call))  # type: ignore[misc]
        for report in () if quiet else reports:
            self._tell(self, report)
