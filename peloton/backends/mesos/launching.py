"""Which of the runs that wait go on the offers at hand.

Turns the runs of an agent into tasks, and what cannot be ordered into ends. Must not speak to
anybody, nor hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.host.messages import RunEnd, StartRun
from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.group_info import group_info
from peloton.backends.mesos.task_info import task_info
from peloton.backends.mesos.words import Bundle, NotOffered
from peloton.backends.port import POISON, cannot_be_ordered


@dataclass(slots=True)
class Launches:
    """The tasks of those that fit, those of several containers as groups, each in order, and the
    ends of those that are invalid."""

    tasks: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    refused: list[RunEnd] = field(default_factory=list)


def launch(agent: Agent, offers: Sequence[Mapping[str, Any]]) -> Launches:
    """What goes on these offers."""
    found = Launches()
    if not offers:
        return found
    bundle = Bundle(entry for offer in offers for entry in offer["resources"])
    for run in [*agent.runs.waiting.values()]:
        assert run.order is not None
        try:
            _put(found, run.order, agent=agent, bundle=bundle)
            agent.runs.sent(run)
        except NotOffered:
            continue
        except POISON as why:
            end = cannot_be_ordered(run.name, why, reason="bad order")
            agent.runs.ended(run, end)
            found.refused.append(end)
    return found


def _put(found: Launches, order: StartRun, *, agent: Agent, bundle: Bundle) -> None:
    keeper, id_ = agent.keeper, agent.agent_id
    if not order.spec.containers:
        found.tasks.append(task_info(order, agent=id_, bundle=bundle, keeper=keeper))
        return
    if keeper is not None:
        keeper.runs(order.spec)  # it runs none of these, and refuses those that demand it
    found.groups.append(group_info(order, agent=id_, bundle=bundle))
