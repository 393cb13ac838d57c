"""What only hosts of Mesos understand, in the spec of a job and in the spec of a run."""

from __future__ import annotations

from peloton.actors.host.run_spec import Container, MesosWords
from peloton.actors.job.slice.task_config import Command, TaskConfig, effective
from peloton.actors.job.spec import JobSpec, check_instances
from tests.actors.jobs.test_secret_refs import SPEC

EXECUTOR = MesosWords("{}")
DEFAULT = TaskConfig(command=Command("a"), executor=EXECUTOR)
SEVERAL = (Container("x", "true"), Container("y", "true"))


def test_an_executor_stays_the_defaults_where_an_instance_has_none() -> None:
    own = effective(DEFAULT, TaskConfig(command=Command("b")))
    assert (own.command, own.executor) == (Command("b"), EXECUTOR)
    other = TaskConfig(executor=MesosWords("{1}"))
    assert effective(DEFAULT, other).executor == MesosWords("{1}")
    assert effective(DEFAULT, None).executor == EXECUTOR


def test_a_container_is_replaced_as_a_whole() -> None:
    docker, other = MesosWords(container="{d}"), MesosWords(container="{o}")
    default = TaskConfig(command=Command("a"), image="d", executor=docker)

    def mesos(own: TaskConfig, of: TaskConfig = default) -> bool | MesosWords:
        return effective(of, own).executor

    assert mesos(TaskConfig()) == docker
    assert mesos(TaskConfig(executor=other)) == other
    assert mesos(TaskConfig(image="of mesos")) is False
    both = TaskConfig(executor=MesosWords("{e}", "{d}"))
    assert mesos(TaskConfig(executor=EXECUTOR)) == MesosWords("{}", "{d}")
    assert mesos(TaskConfig(image="x"), both) == MesosWords("{e}")
    assert mesos(TaskConfig(executor=other), both) == MesosWords("{e}", "{o}")
    assert mesos(TaskConfig(executor=True), TaskConfig()) is True
    assert mesos(TaskConfig(), TaskConfig(executor=True)) is True


def test_several_containers_and_an_executor_replace_each_other() -> None:
    pod = TaskConfig(command=Command("b"), containers=SEVERAL)
    found = effective(DEFAULT, pod)
    assert (found.containers, found.executor) == (SEVERAL, False)
    found = effective(pod, TaskConfig(executor=EXECUTOR))
    assert (found.containers, found.executor) == ((), EXECUTOR)


def test_only_a_service_has_one_and_only_where_it_is_understood() -> None:
    def refused(kind: str, config: TaskConfig) -> str:
        spec = JobSpec(name="a", owner="o", pool=SPEC.pool, instances=1, default=config,
                       job_type=kind, has_default=True)  # fmt: skip
        found = check_instances(spec, [], own=0)
        return found.text if found is not None else ""

    assert not refused("SERVICE", DEFAULT)
    unknown = TaskConfig(command=Command("a"), executor=True)
    assert "an executor is not supported: a task is a command" in refused("SERVICE", unknown)
    assert "should not include executor config" in refused("BATCH", DEFAULT)
