"""What must be so of a conversation, at each step and after a calm.

Holds what is said against what the programs truly do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peloton.actors.host import messages as m
from peloton.actors.host.stages import HostStates, RunPhase
from peloton.actors.task.messages import End
from peloton.backends.mesos.conversation import HEARSAY_WAIT_S, LEFT
from peloton.backends.mesos.offer_book import HOLD_S
from peloton.backends.mesos.offering import OFFER_WAIT_S
from peloton.backends.mesos.runs.statuses import is_hearsay
from peloton.backends.port import Order
from peloton.runtime.core.turning.envelope import Envelope
from tests.backends.mesos.simulated.hosts import LOST_BY_HOST
from tests.backends.mesos.simulated.streams import STREAM_S
from tests.backends.mesos.words import Json
from tests.servers.mesos_model.agents import TERMINAL
from tests.servers.mesos_model.programs import STATES

if TYPE_CHECKING:
    from tests.backends.mesos.simulated.cluster import Cluster
    from tests.backends.mesos.simulated.daemons import Daemon

LIST_S = 40.0
LOSSES = frozenset(("TASK_LOST", "TASK_DROPPED", "TASK_GONE", "TASK_UNKNOWN"))
ENDS = {f"TASK_{state}": end for state, end in STATES.items()} | {"TASK_ERROR": "FAILED"}
NO_OFFER, UNBEGUN = "no offer", "killed before it began"


class Broken(Exception):
    """What must not be, and what happened before it."""

    story: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """The same for all that goes wrong alike."""
        return re.sub(r"0e1f9\S*|[\d.]+|\[.*|\{.*", "#", str(self))


class Checks:
    """Of one cluster."""

    def __init__(self, of: Cluster) -> None:
        self._of = of
        self._told: dict[tuple[object, str, str], Any] = {}
        """Outcomes, by conversation, host and run, until the run is forgotten."""
        self._lists: dict[tuple[object, str], float] = {}
        """Since when lists are asked for, by conversation and host."""
        self._hearsay: dict[tuple[object, str], float] = {}
        """Since when the master has told an end, by conversation and task."""

    def broken(self, text: str) -> None:
        """This must not be."""
        self._of.times.note(f"BROKEN: {text}")
        raise Broken(text)

    # ---- at each step ----

    def heard(self, daemon: Daemon, event: Json) -> None:
        """The conversation hears this: perhaps the master's word of an end."""
        status = event.get("update", {}).get("status", {})
        if is_hearsay(status):
            key = (daemon.life, status["task_id"]["value"])
            self._hearsay.setdefault(key, self._of.times.now)

    def step(self) -> None:
        """Of all the time."""
        of = self._of
        for task in of.programs.twice:
            self.broken(f"{task} began twice")
        held_s = HOLD_S + 2 * STREAM_S * of.times.slow + 0.5  # there, held, and back
        assert held_s < OFFER_WAIT_S
        for offer in of.master.offers.out:
            if of.times.now - offer.since > held_s:
                self.broken(f"offer {offer.name} is held since {offer.since:.3f}")
        for (_, host), since in self._lists.items():
            if of.times.now - since > LIST_S:
                self.broken(f"the list of {host} is not answered since {since:.3f}")

    def called(self, daemon: Daemon, call: Json) -> None:
        """The conversation calls the master."""
        if not daemon.subscribed:
            self.broken(f"{call['type']} is called without a subscription")
        if call["type"] != "ACKNOWLEDGE":
            return
        what = call["acknowledge"]
        task = what["task_id"]["value"]
        final = any(
            one.get("uuid") == what["uuid"] and one["state"] in TERMINAL
            for one in self._of.master.said.get(task, ())
        )
        run = task.partition(".")[0]
        if final and not any(run in host.forgotten for host in self._of.hosts.values()):
            self.broken(f"the end of {task} is acknowledged, and was not journaled")

    def delivered(self, daemon: Daemon, order: Order) -> None:
        """A host's order comes to the conversation."""
        talk = daemon.talk
        if isinstance(order, m.ForgetRuns):
            for run in order.runs:
                self._told.pop((daemon.life, order.host, run), None)
        elif isinstance(order, m.ListRuns) and daemon.subscribed:
            agent = talk.agents.by_host.get(order.host)
            if agent is not None and order.epoch >= agent.epoch:
                self._lists.setdefault((daemon.life, order.host), self._of.times.now)

    def notices(self, daemon: Daemon) -> None:
        """Its subscription is over."""
        for kept in (self._lists, self._hearsay):
            for one in [*kept]:
                if one[0] is daemon.life:
                    del kept[one]

    def reported(self, daemon: Daemon, report: Envelope) -> None:
        """The conversation tells a host."""
        message = report.message
        if isinstance(message, m.RunsListed | m.BackendDown):
            self._lists.pop((daemon.life, report.to), None)
        if message == m.BackendDown(LEFT):  # with it all that was known of its runs
            for one in [*self._told]:
                if one[:2] == (daemon.life, report.to):
                    del self._told[one]
        if isinstance(message, m.RunsStarted):
            for run in message.runs:
                if not any(task.partition(".")[0] == run for task in self._of.programs.begun):
                    self.broken(f"{run} is said to have begun, and has not")
        if isinstance(message, m.RunsListed):
            self._listed(daemon, report.to, message)
        if isinstance(message, m.RunsListed | m.RunsEnded):
            for end in message.ends:
                self._ended(daemon, report.to, end)

    def _listed(self, daemon: Daemon, host: str, message: m.RunsListed) -> None:
        if len({*message.running}) < len(message.running):
            self.broken(f"a list of {host} has a run twice")
        if {*message.running} & {end.run for end in message.ends}:
            self.broken(f"a list of {host} has a run that runs and has ended")
        agent = daemon.talk.agents.by_host.get(host)  # type: ignore[call-overload]
        if agent is None or agent.agent_id != message.incarnation:
            self.broken(f"a list of {host} is of another agent")

    def _ended(self, daemon: Daemon, host: str, end: m.RunEnd) -> None:
        before = self._told.setdefault((daemon.life, host, end.run), end.outcome)
        if before != end.outcome:
            self.broken(f"{end.run} has two ends: {before} and {end.outcome}")
        outcome, programs = end.outcome, self._of.programs
        if outcome.message == UNBEGUN:
            return  # as far as this daemon knows: if another one has launched it, it is killed
        if outcome.reason == NO_OFFER:
            if end.run in programs.ends or programs.where.get(end.run):
                self.broken(f"{end.run} has {outcome}, and it began")
            return
        said = [
            one
            for task, every in self._of.master.said.items()
            if task.partition(".")[0] == end.run
            for one in every
        ]
        ends = {ENDS.get(one["state"], "LOST") for one in said if one["state"] in TERMINAL | LOSSES}
        of_agents = {  # an executor is gone, or has just gone
            "LOST"
            for one in said
            if one["source"] == "SOURCE_AGENT" or " required by " in one.get("message", "")
        }
        if outcome.end.name not in ends | of_agents:
            self.broken(f"{end.run} is said to be {outcome}, of which nobody spoke: {ends}")
        truth = programs.ends.get(end.run)
        if outcome.end is End.FAILED and outcome.exit_code is None and truth is not None:
            since = self._hearsay.get((daemon.life, end.run), float("inf"))
            of_one = truth.code is not None and f"{end.run}.1.2" not in programs.begun
            if of_one and self._of.times.now < since + HEARSAY_WAIT_S:
                self.broken(f"{end.run} has {outcome} by hearsay of {since:.3f}")
        codes = {one.code for task, one in programs.ends.items() if task.startswith(end.run)}
        if outcome.exit_code is not None and outcome.exit_code not in codes:
            self.broken(f"{end.run} is said to have exited with {outcome.exit_code}: {codes}")

    def lost(self, run: str, by: m.RunsListed) -> None:
        """A host gives a run up, which a list lacks of the very agent that it was on."""
        where = self._of.programs.where.get(run, ())
        for agent in self._of.agents:
            there = self._of.master.agents.get(agent.name)
            if agent.name in where and agent.name == by.incarnation and there is not None:
                self.broken(f"{run} runs at {agent.name}, and the list of {by.asked_at} lacks it")

    # ---- after a calm ----

    def is_comparing(self) -> bool:
        """Whether a host has just asked for a list, as it does every while."""
        return any(host.state is not HostStates.UP for host in self._of.hosts.values())

    def calm(self) -> None:
        """All is known, and what nobody wants has ended."""
        of = self._of
        for host in of.hosts.values():
            if host.state is not HostStates.UP:
                self.broken(f"{host.key} is {host.state.name} after a calm")
            for run, phase in host.runs.items():
                if phase is RunPhase.ACCEPTED:
                    self.broken(f"{run} has not begun, nor ended, after a calm")
                tasks = [run, *(f"{run}.1.2" for _ in host.specs[run].containers[1:])]
                if not any(of.programs.where.get(task) for task in tasks):
                    self.broken(f"{run} does not run, and {host.key} holds it")
        for agent in of.agents:
            if agent.lives:
                held_there = {run for host in of.hosts.values() for run in host.runs}
                for task in of.programs.running(agent.name):
                    if task.partition(".")[0] not in held_there:
                        self.broken(f"{task} runs at {agent.name}, and nobody holds it")

    def outcomes(self) -> None:
        """The journals say what became of the runs, where nothing was lost on the way."""
        of = self._of
        for host in of.hosts.values():
            for run, outcome in host.ends.items():
                truth = of.programs.ends.get(run)
                if truth is None or outcome.containers or f"{run}.1.2" in of.programs.ends:
                    continue
                if outcome.end is End.LOST and (outcome.reason == LOST_BY_HOST or of.losses):
                    continue
                said = "KILLED" if run in host.killed else STATES[truth.state]
                if outcome.end.name not in (said, STATES[truth.state]) and truth.state != "LOST":
                    self.broken(f"{run} has {outcome}, and was {truth}")

    def over(self) -> None:
        """All runs have ended and are forgotten: so they are for the conversation."""
        of, talk = self._of, self._of.owner.talk
        held = [run for host in of.hosts.values() for run in host.runs]
        if held:
            self.broken(f"{held} have not ended")
        left: dict[str, Any] = {
            "runs": [run for each in talk.agents.by_host.values() for run in each.runs.runs],
            "waiting": [run for each in talk.agents.by_host.values() for run in each.runs.waiting],
            "checks": [run for each in talk.agents.by_host.values() for run in each.runs.checks],
            "lists": [each.listing for each in talk.agents.by_host.values() if each.listing],
            "former": talk.agents._former.hosts,
            "kills": [*talk._kills._open],
            "early": [*talk._early.take_known(lambda id_: id_ in of.master.agents or None)],
            "due": talk._times._heap if len(talk._times._heap) > DUE_MAX else [],
            "agents": {*talk.agents._by_id} ^ {a.agent_id for a in talk.agents.by_host.values()},
            "beside": {*talk.agents._beside} - {*of.master.agents},
            "at the master": [task for each in of.master.agents.values() for task in each.tasks],
            "at agents": [task for each in of.agents if each.lives for task in each.tasks],
        }
        for what, some in left.items():
            if some:
                self.broken(f"{what} are left: {some}")


DUE_MAX = 2
"""The next question for all tasks, and perhaps the one before it."""
