"""The config of an instance, and how the default and an instance's own combine.

What a client sent is checked before, in the gateway.
"""

from __future__ import annotations

import msgspec

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.run_spec import Container, MesosWords, Port, SecretRef, Uri
from peloton.actors.resources import Resources
from peloton.actors.task.run_messages import HealthCheck, RetryRules
from peloton.placement.messages import Constraint
from peloton.runtime.vocabulary import Value


class Command(Value, frozen=True, gc=False, array_like=True):
    """What is run: `/bin/sh -c value` when `shell`, else `value` with `arguments` as argv.

    `user` is the account that the spec asks for. `caller` is the name of the client that created
    the job, if that was proven: a client never chooses it. Either may be empty.
    """

    value: str
    shell: bool = True
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    user: str = ""
    caller: str = ""
    uris: tuple[Uri, ...] = ()


Pairs = tuple[tuple[str, str], ...]


class TaskConfig(Value, frozen=True, gc=False, array_like=True):
    """The config of an instance, or the default of all. None and empty mean "not given".

    `controller` and `revocable` have no such value: an instance's own config always decides them,
    as in the original. With several `containers`, the command is the first one's. `executor`:
    whether one is asked for; for hosts of Mesos, the parts that only these understand.
    """

    name: str = ""
    resources: Resources | None = None
    command: Command | None = None
    ports: tuple[Port, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    constraint: Constraint | None = None
    max_failures: int | None = None
    kill_grace_s: float | None = None
    image: str = ""
    controller: bool = False
    revocable: bool = False
    health_check: bool = False
    executor: bool | MesosWords = False
    preemptible: bool | None = None
    raw: bytes = b""
    max_running_s: float | None = None  # of one run; a label says it, so it goes with the labels
    kill_on_preempt: bool | None = None  # one that is preempted is not run again
    containers: tuple[Container, ...] = ()
    check: HealthCheck | None = None  # None of one that is switched off: `health_check` is set
    secrets: tuple[SecretRef, ...] = ()  # an instance's own config has those of the default
    volume: VolumeConfig | None = None
    environment: Pairs = ()  # variables of the command, whose own win
    retry: RetryRules | None = None

    @property
    def variables(self) -> Pairs:
        """Return all environment variables of the command."""
        own = self.command.environment if self.command is not None else ()
        return tuple((dict(self.environment) | dict(own)).items()) if self.environment else own

    @property
    def has_executor(self) -> bool:
        """Return whether an executor of its own is asked for, whichever hosts could start it."""
        return (
            self.executor.executor != "" if isinstance(self.executor, MesosWords) else self.executor
        )

    def on_slack(self) -> TaskConfig:
        """Return the config for an instance of a revocable job: its cpu is slack."""
        if self.resources is None:
            return self
        return msgspec.structs.replace(self, resources=self.resources.revocable())

    def with_variable(self, name: str, value: str) -> TaskConfig:
        """Return the config with a variable in the environment of its command and containers,
        unless they set it."""
        command, one = self.command, (name, value)
        if command is not None:
            command = msgspec.structs.replace(command, environment=_added(command.environment, one))
        containers = tuple(
            msgspec.structs.replace(each, environment=_added(each.environment, one))
            for each in self.containers
        )
        return msgspec.structs.replace(self, command=command, containers=containers)


class Override(Value, frozen=True, gc=False, array_like=True):
    """One instance's own config."""

    instance: int
    config: TaskConfig


def _added(environment: Pairs, one: tuple[str, str]) -> Pairs:
    return environment if one[0] in dict(environment) else (*environment, one)


def effective(default: TaskConfig, own: TaskConfig | None) -> TaskConfig:
    """Return the config of an instance: each field is its own if given, else the default's."""
    if own is None:
        return default
    kill = own.kill_on_preempt
    no_command = own.command is None and not own.has_executor
    return TaskConfig(
        name=own.name or default.name,
        resources=own.resources if own.resources is not None else default.resources,
        command=own.command if own.command is not None else default.command,
        ports=own.ports or (() if own.containers else default.ports),
        labels=own.labels or default.labels,
        constraint=own.constraint if own.constraint is not None else default.constraint,
        max_failures=own.max_failures if own.max_failures is not None else default.max_failures,
        kill_grace_s=own.kill_grace_s if own.kill_grace_s is not None else default.kill_grace_s,
        image=own.image or ("" if own.containers else default.image),
        controller=own.controller,
        revocable=own.revocable,
        health_check=own.health_check or default.health_check,
        executor=own.executor if own.containers else _effective_mesos(default, own),
        preemptible=own.preemptible if own.preemptible is not None else default.preemptible,
        raw=own.raw,
        max_running_s=own.max_running_s if own.labels else default.max_running_s,
        kill_on_preempt=default.kill_on_preempt if kill is None else kill,
        containers=default.containers if no_command else own.containers,
        check=own.check if own.health_check or own.containers else default.check,
        secrets=own.secrets or default.secrets,
        volume=own.volume if own.volume is not None else default.volume,
        environment=own.environment or default.environment,
        retry=own.retry if own.retry is not None else default.retry,
    )


def _effective_mesos(default: TaskConfig, own: TaskConfig) -> bool | MesosWords:
    """Replace a container as a whole, also by one that is nothing but an image."""
    one, other = own.executor, default.executor
    if not isinstance(other, MesosWords) or not isinstance(one or other, MesosWords):
        return one or other
    executor, container = other.executor, "" if own.image else other.container
    if isinstance(one, MesosWords):
        executor, container = one.executor or executor, one.container or container
    return MesosWords(executor, container) if executor or container else False


def same_config(one: TaskConfig, other: TaskConfig) -> bool:
    """Return whether a run by one config is a run by the other.

    Names, the order of labels and ports, and who sent it do not matter.
    """
    return one is other or _compared(one) == _compared(other)


def _compared(config: TaskConfig) -> TaskConfig:
    command = config.command
    return msgspec.structs.replace(
        config,
        name="",
        raw=b"",
        health_check=False,  # whether there is a check says the check
        labels=tuple(sorted(config.labels)),
        ports=tuple(sorted(config.ports, key=lambda port: (port.name, port.number, port.env))),
        command=msgspec.structs.replace(command, caller="") if command is not None else None,
    )
