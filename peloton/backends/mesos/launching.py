"""The runs that are launched on the offers at hand, out of those that wait.

Turns the runs of an agent into tasks, and runs that cannot be ordered into ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.host.messages import RunEnd
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.run_table import Run
from peloton.backends.mesos.runs.group_info import group_info
from peloton.backends.mesos.runs.keeper_tasks import NotByKeeper
from peloton.backends.mesos.runs.task_info import NoExecutorHere, NotOnMesos, task_info
from peloton.backends.mesos.runs.words import Bundle, NotOffered
from peloton.backends.port import POISON, cannot_be_ordered

NO_EXECUTOR = "no executor"
"""The reason of a run that is to go to another host, as ours does not start on this one."""
SECRET_BYTES_MAX = 2 * 1024 * 1024
"""Of all runs in one call, of which one may have 512 KiB; the others wait for the next offer. What
goes wrong otherwise: a call of many megabytes, which the master reads before any other of ours."""


@dataclass(slots=True)
class Launches:
    """The launches on some offers.

    `tasks` are those of the runs that fit, `groups` those of several containers, each in order, and
    `refused` the ends of runs that are invalid, or impossible at this agent.
    """

    tasks: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    refused: list[RunEnd] = field(default_factory=list)


def launch(agent: Agent, offers: Sequence[Mapping[str, Any]]) -> Launches:
    """Return the launches on these offers."""
    found = Launches()
    if not offers:
        return found
    bundle = Bundle(entry for offer in offers for entry in offer["resources"])
    secret_bytes = 0
    for run in [*agent.runs.waiting.values()]:
        more = sum(len(one.data) for one in run.secrets)
        if more and secret_bytes and secret_bytes + more > SECRET_BYTES_MAX:
            continue
        try:
            _put(found, run, agent=agent, bundle=bundle)
            agent.runs.sent(run)
            secret_bytes += more
            continue
        except NotOffered:
            continue
        except NoExecutorHere as error:
            lost = RunOutcome(End.LOST, reason=NO_EXECUTOR, message=str(error), system=True)
            end = RunEnd(run.name, lost)
        except POISON as error:
            lacks = isinstance(error, NotOnMesos | NotByKeeper)
            why = f"not possible on a host of Mesos: {error}" if lacks else error
            end = cannot_be_ordered(run.name, why, reason="bad order")
        agent.runs.ended(run, end)
        found.refused.append(end)
    return found


def _put(found: Launches, run: Run, *, agent: Agent, bundle: Bundle) -> None:
    order, keeper, id_ = run.order, agent.keeper, agent.agent_id
    assert order is not None
    if not order.spec.containers:
        task = task_info(order, agent=id_, bundle=bundle, keeper=keeper, secrets=run.secrets)
        found.tasks.append(task)
        return
    if keeper is not None:
        keeper.runs(order.spec)  # it runs none of these, and refuses those that demand it
    found.groups.append(group_info(order, agent=id_, bundle=bundle))
