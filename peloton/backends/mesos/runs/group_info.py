"""The group of tasks that is a run of several containers, under the default executor of Mesos.

Mesos holds all of them, and their executor, to the sum of their resources. So it matters little
which has which part, and the sum is what the run was promised: the executor's share comes off it. A
part of a run that Mesos cannot provide must be refused, not left out.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import Container, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.keeper.pods import NAME_VARIABLE
from peloton.backends.mesos.runs.groups import executor_id, task_id
from peloton.backends.mesos.runs.task_info import NotOnMesos, task_info
from peloton.backends.mesos.runs.words import Bundle

CPU, MEMORY = UNIT // 100, 32 * UNIT
"""What Mesos wants an executor to have at least; of disk it is the least that can be counted, which
a run that needs none has beside what it was promised."""
_THOUSANDTH = UNIT // 1000


def group_info(run: StartRun, *, agent: str, bundle: Bundle) -> dict[str, Any]:
    """Return the executor and its tasks; their resources are taken from the bundle.

    Raises `NotOnMesos`, and `NotOffered` of `Bundle.take`; then nothing is taken.
    """
    _check(run.spec)
    own, shares = split(run.spec.resources, len(run.spec.containers))
    count = len(shares)
    id_ = executor_id(run.run, of=count)
    with bundle.together():
        executor = {
            "type": "DEFAULT",
            "executor_id": {"value": id_},
            "name": id_,
            "source": "peloton",
            "resources": bundle.take(own, ()),
        }
        tasks = []
        for at, (container, share) in enumerate(zip(run.spec.containers, shares, strict=True)):
            alone = _alone(run, container, share=share, is_first=not at)
            task = task_info(alone, agent=agent, bundle=bundle)
            task["name"] = container.name
            task["task_id"] = {"value": task_id(run.run, at, of=count)}
            tasks.append(task)
    return {"executor": executor, "task_group": {"tasks": tasks}}


def split(need: Resources, count: int) -> tuple[Resources, list[Resources]]:
    """Split resources into the executor's and those of each container: equal parts.

    The first container has what is left over, and the gpus. Raises `NotOnMesos` if there is too
    little.
    """
    kind = "slack" if need.slack and not need.cpu else "cpu"
    own = Resources(**{kind: CPU, "memory": MEMORY, "disk": _THOUSANDTH})
    cpu, memory = getattr(need, kind), need.memory
    if cpu < CPU + count * _THOUSANDTH or memory < MEMORY + count * _THOUSANDTH:
        raise NotOnMesos(
            f"a pod of {count} containers with {cpu / UNIT:g} cpu and {memory / UNIT:g} MB: "
            f"of these Mesos' executor takes {CPU / UNIT:g} cpu and {MEMORY / UNIT:g} MB"
        )
    left = need - own
    amounts = {name: max(0, getattr(left, name)) for name in Resources.KINDS}
    each = {
        name: 0 if name == "gpu" else amount // count // _THOUSANDTH * _THOUSANDTH
        for name, amount in amounts.items()
    }
    first = {name: amount - (count - 1) * each[name] for name, amount in amounts.items()}
    return own, [Resources(**first), *[Resources(**each)] * (count - 1)]


def _check(spec: RunSpec) -> None:
    if any(one.init for one in spec.containers):
        raise NotOnMesos("init containers: its executor starts all containers of a pod at once")
    if spec.volume is not None:
        raise NotOnMesos("volumes in a pod of several containers")
    if spec.secrets:
        raise NotOnMesos("secrets in a pod of several containers: leave out one of the two")


def _alone(run: StartRun, one: Container, *, share: Resources, is_first: bool) -> StartRun:
    """Return the run as if it were this container alone. The first has the ports; all know them."""
    spec = run.spec
    pairs = zip(spec.ports, run.ports, strict=True)
    known = () if is_first else [(port.env, str(number)) for port, number in pairs if port.env]
    alone = replace(
        spec,
        resources=share,
        value=one.value,
        shell=one.shell,
        arguments=one.arguments,
        environment=(*one.environment, (NAME_VARIABLE, one.name), *known),
        image=one.image,
        containers=(),
        check=_check_in(one, spec.check, is_first=is_first),
        ports=spec.ports if is_first else (),
    )
    return StartRun(run.run, alone, run.ports if is_first else ())


def _check_in(one: Container, check: HealthCheck | None, *, is_first: bool) -> HealthCheck | None:
    """Return the checks to make in this container; unnamed ones belong to the first."""

    def here(some: HealthCheck) -> bool:
        return some.container == one.name or (not some.container and is_first)

    if check is None:
        return None
    readiness = check.readiness if check.readiness and here(check.readiness) else None
    if check.of_health and here(check):
        return replace(check, readiness=readiness)
    return None if readiness is None else HealthCheck(readiness=readiness)
