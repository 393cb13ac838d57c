"""Jobs with placement conditions during a storm: instances apart, near tasks, and with ports.

Turns a scenario's action into jobs with conditions that become true once other tasks have ended, so
that each of them ends in the calm. Drawn separately from all other work, so that older seeds keep
their storms.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.host.run_spec import Port
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.workload import cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.placement.messages import Constraint, Label
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm

SHARE = 0.35
ACTIONS = (2, 7)
SIZES = (2, 3, 5, 12)
WEB = 8080
OURS = ("app", "ours")
THEIRS = ("app", "theirs")


def tasks(label: tuple[str, str], condition: str, *, number: int) -> Constraint:
    """Return a condition on the tasks of a host."""
    return Constraint("label", "task", Label(*label), condition, number)


ALONE = tasks(OURS, "less", number=1)
FORMS: tuple[TaskConfig, ...] = (
    TaskConfig(labels=(OURS,), constraint=ALONE),
    TaskConfig(labels=(OURS,), constraint=tasks(OURS, "less", number=2)),
    TaskConfig(labels=(THEIRS,), constraint=tasks(OURS, "equal", number=0)),
    TaskConfig(
        labels=(OURS, THEIRS),
        constraint=Constraint("or", members=(tasks(THEIRS, "greater", number=0), ALONE)),
    ),
    TaskConfig(
        labels=(THEIRS,),
        constraint=Constraint("and", members=(ALONE, tasks(THEIRS, "less", number=3))),
    ),
    TaskConfig(ports=(Port("web", WEB), Port("rpc", 0, "RPC_PORT"))),
    TaskConfig(ports=(Port("rpc", 0, "RPC_PORT"), Port("more", 0, "MORE_PORT"))),
)
RIVALS = (0, 1, 5)
"""The forms that exclude others of their own."""
RIVALS_MAX = 4


def create_spread(storm: Storm, action: StormAction) -> None:
    """Create a job whose instances are kept apart; with more of them than hosts some share one."""
    _create(storm, action, config=TaskConfig(), spread=True)


def create_conditional(storm: Storm, action: StormAction) -> None:
    """Create a job with a constraint on the tasks of its hosts, or with ports."""
    _create(storm, action, config=FORMS[action.which % len(FORMS)], spread=action.other % 4 == 0)


def create_rivals(storm: Storm, action: StormAction) -> None:
    """Create jobs at one instant that may not share a host, so that placers compete."""
    form = FORMS[RIVALS[action.which % len(RIVALS)]]
    for _ in range(RIVALS_MAX):
        _create(storm, action, config=form, spread=False)


def _create(storm: Storm, action: StormAction, *, config: TaskConfig, spread: bool) -> None:
    cluster = cluster_of(storm)
    default = TaskConfig(
        command=Command("x"),
        resources=NEED,
        labels=config.labels,
        constraint=config.constraint,
        ports=config.ports,
    )
    spec = JobSpec("placed", "me", STORM_POOL, max(1, action.count), default, spread=spread)
    create_job(cluster, action, message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create spread": create_spread,
    "create conditional": create_conditional,
    "create rivals": create_rivals,
}
WEIGHTS = {"create spread": 2, "create conditional": 4, "create rivals": 2}


DRAWN = ActionDraw(
    "placing",
    SHARE,
    ACTIONS,
    by_weight(WEIGHTS),
    lambda chance: chance.choice(SIZES),
)
