"""Offers of the master, and the runs that wait for them.

An order that finds no offer waits for one, and asks for it (`REVIVE`); after `OFFER_WAIT_S` the run
ends as lost, without fault of its program, so that its task goes to another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from peloton.actors.host.messages import RunEnd, RunsEnded
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.due_times import DueTimes
from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.launching import launch
from peloton.backends.mesos.masters import calls
from peloton.backends.mesos.offer_book import OfferBook
from peloton.backends.mesos.run_table import Run
from peloton.backends.mesos.runs.words import Bundle
from peloton.backends.port import POISON, Report
from peloton.runtime.vocabulary import Key

OFFER_WAIT_S = 30.0
"""How long a run waits for an offer of its host before it goes elsewhere."""
REFUSE_S = 5.0
"""For how long others come first on what we decline; an order asks for it at once."""


class Offering:
    """The offers and waiting runs of one framework.

    `send` takes calls to the master, `tell` reports to a host, `knows` returns whether the state of
    an agent is known now.
    """

    def __init__(
        self,
        times: DueTimes,
        *,
        send: Callable[[calls.Call], None],
        tell: Callable[[Key, Report], None],
        knows: Callable[[Agent], bool],
    ) -> None:
        self._times, self._send, self._tell, self._knows = times, send, tell, knows
        self._book = OfferBook()
        self._revived = False  # since we got or gave back offers: one call asks for all

    def clear(self) -> None:
        """Remove all offers: the connection is new, or lost, and offers made before are void."""
        self._revived = False
        self._book.clear()

    def made(
        self,
        offers: Sequence[Mapping[str, Any]],
        now: float,
        *,
        of: Callable[[str], Agent | None],
    ) -> Iterator[tuple[str, Exception]]:
        """Take offers of the master; `of` returns agents by their ids.

        An offer that cannot be read is declined, if at least its id can, and yielded with the
        reason.
        """
        for offer in offers:
            self._revived = False
            try:
                Bundle(offer["resources"])  # all that a launch will read
                self._book.add(offer, now)
                agent = of(offer["agent_id"]["value"])
            except POISON as why:
                yield self._cannot_be_read(offer), why
                continue
            if agent is not None:
                self.launch(agent)

    def _cannot_be_read(self, offer: Any) -> str:
        try:
            name = str(offer["id"]["value"])
        except POISON:
            return "an offer without an id"
        self._send(calls.decline((name,), REFUSE_S))
        return f"offer {name}"

    def rescinded(self, name: str) -> None:
        """Remove an offer that the master has taken back."""
        self._book.rescinded(name)

    def wait(self, agent: Agent, runs: Sequence[Run], now: float) -> None:
        """Launch these runs, which were ordered, now, or let them wait."""
        self.launch(agent)
        if any(run.waits for run in runs):
            self._times.at(now + OFFER_WAIT_S, partial(self._no_offer, agent, runs))

    def launch(self, agent: Agent) -> None:
        """Launch the runs that wait and fit, in one call."""
        if not agent.runs.waiting:
            return
        found = launch(agent, self._book.of(agent.agent_id))
        if found.tasks or found.groups:
            offers = self._book.use(agent.agent_id)
            self._send(calls.accept(offers, found.tasks, groups=found.groups))
        if found.refused:
            self._tell(agent.host, RunsEnded(tuple(found.refused)))
        if agent.runs.waiting and not self._revived:
            self._revived = True
            self._send(calls.revive())

    def _no_offer(self, agent: Agent, runs: Sequence[Run], now: float) -> None:
        """End the runs that still wait after the time for it."""
        ends = []
        for run in runs:
            if agent.runs.waiting.get(run.name) is run and self._knows(agent):
                text = f"no offer of its host within {OFFER_WAIT_S:g} s"
                lost = RunOutcome(End.LOST, reason="no offer", message=text, system=True)
                ends.append(RunEnd(run.name, lost))
                agent.runs.ended(run, ends[-1])
        if ends:
            self._tell(agent.host, RunsEnded(tuple(ends)))

    @property
    def wake_at(self) -> float | None:
        """When the oldest offer is to be declined."""
        return self._book.wake_at

    def due(self, now: float) -> None:
        """Decline the offers that nobody wanted."""
        unwanted = [*self._book.due(now)]
        if unwanted:
            self._send(calls.decline(unwanted, REFUSE_S))
            self._revived = False
