"""Revocable jobs during a storm, and hosts whose slack shrinks and rises.

Turns a scenario's action into a job that runs on slack, or into a report of a host's measured
slack. A storm that has them has hosts with slack; others keep theirs without, so older seeds keep
their storms. That no host grants more slack than it has is R9, as for all kinds; what it takes back
is judged once all is quiet, by `checks.hosts_keep_their_slack`.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.host.machine_messages import SlackReported
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.work.drawing import ActionDraw
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.chaos.cluster.world.machines import machine_report
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

HOST_SLACK = 3 * UNIT
MEASURED_S = 2.0
"""For so long a measurement counts, and then until a report that it is over has come."""
LOOKS = 15
"""A report waits where it was sent to until the shard of its host has an owner, for half a minute
at most: 0 that came after the end was never taken back, and revocable jobs waited for ever."""
MEASURED = (0, UNIT, 3 * UNIT, 5 * UNIT)


def create_revocable(storm: Storm, action: StormAction) -> None:
    """Create a job that runs on slack; its priority is one of two."""
    cluster = cluster_of(storm)
    storm.strike(action.name)
    config = TaskConfig(command=Command("x"), resources=Resources(NEED.cpu)).on_slack()
    spec = JobSpec(
        "on slack", "me", STORM_POOL, max(1, action.count), config,
        revocable=True, priority=action.which % 2,
    )  # fmt: skip
    client = CLIENTS[action.other % len(CLIENTS)]
    cluster.clients.create(client, cluster.draw_job(), message=CreateJob(spec))


def measure_slack(storm: Storm, action: StormAction) -> None:
    """Report that a host has less slack, or more."""
    cluster = cluster_of(storm)
    storm.strike(action.name)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    slack = MEASURED[action.other % len(MEASURED)]
    _report(storm, host, slack=slack)
    _end(storm, host)


def _report(storm: Storm, host: Key, *, slack: int | None) -> None:
    address = cluster_of(storm).backend.address
    for daemon in [*storm.world.living()][:1]:
        daemon.region.tell((machine_report(host, SlackReported(slack), of=address),))


def _end(storm: Storm, host: Key, *, rest: int = LOOKS) -> None:
    """Let the host have its configured slack again after a while.

    Until then reports may be lost, and an older one may come late: of so many looks one after
    another none must find it measured.
    """

    def again() -> None:
        state = storm.world.cells("host").get(host)
        if state is None or state.declared is not None:
            _report(storm, host, slack=None)
            _end(storm, host)
        elif rest:
            _end(storm, host, rest=rest - 1)

    storm.world.later.at(storm.world.now + MEASURED_S, again)  # when the storm is over, too


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create revocable": create_revocable,
    "slack measured": measure_slack,
}
DRAWN = ActionDraw(
    "overcommit",
    0.15,
    (4, 9),
    lambda chance: chance.choice([*WORK]),
    lambda chance: chance.choice((1, 2, 5, 12)),
)


def slack_of(actions: tuple[StormAction, ...]) -> Resources:
    """Return the slack of each host of a storm with these actions."""
    there = any(action.name in WORK for action in actions)
    return Resources(slack=HOST_SLACK) if there else Resources()
