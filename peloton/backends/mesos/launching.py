"""Which of the runs that wait go on the offers at hand.

Turns the runs of an agent into tasks, and what cannot be ordered into ends. Must not speak to
anybody, nor hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peloton.actors.host.messages import RunEnd
from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.task_info import task_info
from peloton.backends.mesos.words import Bundle, NotOffered
from peloton.backends.port import POISON, cannot_be_ordered


def launch(
    agent: Agent, offers: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[RunEnd]]:
    """The tasks of those that fit, in order, and the ends of those that are invalid."""
    tasks: list[dict[str, Any]] = []
    refused: list[RunEnd] = []
    if not offers:
        return tasks, refused
    bundle = Bundle(entry for offer in offers for entry in offer["resources"])
    for run in [*agent.runs.waiting.values()]:
        assert run.order is not None
        try:
            order, keeper = run.order, agent.keeper
            tasks.append(task_info(order, agent=agent.agent_id, bundle=bundle, keeper=keeper))
            agent.runs.sent(run)
        except NotOffered:
            continue
        except POISON as why:
            end = cannot_be_ordered(run.name, why, reason="bad order")
            agent.runs.ended(run, end)
            refused.append(end)
    return tasks, refused
