"""What a job is made of, and the rules for it.

A spec that breaks a rule is refused with the original's texts. Configs of instances are defined in
`slice/messages.py` and exported here too, because a job's creator needs both. `raw`, the encoding
of a config on the wire, is kept for reading back and never read here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from peloton.actors.host.run_spec import SecretRef, clash
from peloton.actors.job.slice.task_config import Override, TaskConfig, effective
from peloton.actors.task.messages import SLICE_SIZE
from peloton.placement.conditions import depends_on_tasks
from peloton.runtime.vocabulary import Key, Refused, Value

INSTANCES_MAX = 100_000
INVALID = "INVALID_CONFIG"
BATCH, SERVICE, DAEMON = "BATCH", "SERVICE", "DAEMON"
DEFAULT = "defaultConfig"
GANG_MAX = SLICE_SIZE
"""Instances of a gang: its owner is the first slice, which has all of them."""
GANG_LABEL, PROGRESS_LABEL = "peloton.gang", "peloton.workflow.progress_deadline"
HEALTHY_LABEL = "peloton.healthy_after"
DAEMON_FIRST_LABEL = "peloton.daemon.first"
DAEMON_SLICES = 64
"""Slices of a daemon job, about: each has numbers for a thousand hosts of one inventory."""
NO_DAEMON = "the job is no daemon job"
NO_GANG = "sla.minimumRunningInstances is not above 1, or the job is revocable"


class After(Value, frozen=True, gc=False, array_like=True):
    """Another job that has to end before this one begins. `state`: in which state, or `ENDED`
    for any."""

    job: Key
    state: str = "SUCCEEDED"


class Deadline(Value, frozen=True, gc=False, array_like=True):
    """When a job has to have ended: a time after its creation, or else a moment.

    `text` is what the client wrote.
    """

    text: str
    after_s: float = 0.0
    at: float = 0.0  # seconds since the epoch


class Throttle(Value, frozen=True, gc=False, array_like=True):
    """At most `count` instances begin within any `period_s`.

    `text` is what the client wrote.
    """

    text: str
    count: int
    period_s: float


class Notify(Value, frozen=True, gc=False, array_like=True):
    """Where the end of a job is told.

    `states`: only if it ended in one of these; empty for any end.
    """

    url: str
    states: tuple[str, ...] = ()


class JobSpec(Value, frozen=True, gc=False, array_like=True):
    """What a client wants. Constant size: overrides are sent separately, by slice."""

    name: str
    owner: str
    pool: Key
    instances: int
    default: TaskConfig
    job_type: str = BATCH
    labels: tuple[tuple[str, str], ...] = ()
    description: str = ""
    priority: int = 0
    preemptible: bool = True
    revocable: bool = False
    minimum_running: int = 0
    maximum_running: int = 0
    max_running_time_s: float = 0.0
    has_default: bool = True
    raw: bytes = b""
    own_configs: int = 0  # how many instances have a config of their own
    spread: bool = False  # one instance per host, while there are hosts without one
    config_version: int = 1  # one higher with each update
    after: tuple[After, ...] = ()
    deadline: Deadline | None = None
    unique: bool = False  # no other such job of the pool has its name before it has ended
    throttle: Throttle | None = None
    notify: Notify | None = None
    gang_together: bool = False  # if one of the gang fails, all are restarted
    strategy: str = ""  # its name, where `spread` does not say it
    maximum_unavailable: int = 0  # instances of a service; 0 for no limit
    inventories: int = 0  # whose hosts a daemon job follows
    room_first: bool = False  # hosts keep room for its instances before other work
    progress_s: float | None = None  # a workflow fails if for so long no instance is through
    healthy_after_s: float | None = None  # a run that lasts so long clears the failures before it

    @property
    def is_service(self) -> bool:
        """Return whether its instances are to run for ever, and to run again whatever ended
        them."""
        return self.job_type in (SERVICE, DAEMON)

    @property
    def is_daemon(self) -> bool:
        """Return whether the job has one instance on every host that matches, and no other."""
        return self.job_type == DAEMON

    def on_hosts_of(self, inventories: int) -> JobSpec:
        """Return the spec of a daemon job with numbers for the instances on so many inventories'
        hosts."""
        if not self.is_daemon:
            return self
        slices = inventories * max(1, DAEMON_SLICES // inventories)
        return msgspec.structs.replace(self, inventories=inventories, instances=slices * SLICE_SIZE)

    @property
    def gang(self) -> int:
        """Return how many instances, the first ones, are admitted, placed and started together."""
        return self.minimum_running if self.minimum_running > 1 and not self.revocable else 0

    def ranked_by(self, strategy: str) -> JobSpec:
        """Return the spec with a strategy of this name."""
        return msgspec.structs.replace(self, strategy=strategy)

    def with_secrets(self, secrets: tuple[SecretRef, ...]) -> JobSpec:
        """Return the spec with these secrets for each instance."""
        return msgspec.structs.replace(self, default=with_secrets(self.default, secrets))


def with_secrets(config: TaskConfig, secrets: tuple[SecretRef, ...]) -> TaskConfig:
    """Return the config with these secrets, if there are any."""
    return msgspec.structs.replace(config, secrets=secrets) if secrets else config


def check_spec(spec: JobSpec) -> Refused | None:
    """Return the refusal for the first rule that the job as a whole breaks, or None."""
    if spec.job_type not in (BATCH, SERVICE, DAEMON):
        return _invalid("type", f"invalid job type: {spec.job_type}")
    if spec.instances < 1:
        return _invalid("instanceCount", "a job needs at least one instance")
    if spec.instances > INSTANCES_MAX and not spec.is_daemon:
        text = (
            f"Requested tasks: {spec.instances} for job is greater than supported: "
            f"{INSTANCES_MAX} tasks/job"
        )
        return _invalid("instanceCount", text)
    if spec.is_daemon:
        return _check_daemon(spec) or _check_service(spec)
    return _check_service(spec) if spec.is_service else _check_batch(spec)


def _check_daemon(spec: JobSpec) -> Refused | None:
    if spec.own_configs:
        text = "the instances of a daemon job have no configs of their own: hosts come and go"
        return _invalid("instanceConfig", text)
    if spec.inventories < 1 or spec.instances % (spec.inventories * SLICE_SIZE):
        return _invalid("instanceCount", "must be 0 for a daemon job: its hosts are counted")
    if depends_on_tasks(spec.default.constraint):
        text = "a daemon job chooses hosts by their labels, not by the tasks on them"
        return _invalid(f"{DEFAULT}.constraint", text)
    if spec.throttle is not None:
        return _invalid("labels", "peloton.throttle: a daemon job has no throttle")
    if spec.maximum_unavailable:
        text = "a daemon job has no limit of unavailable instances yet"
        return _invalid("sla.maximumUnavailableInstances", text)
    if spec.spread:
        text = "a daemon job has one instance on each host, whatever the strategy"
        return _invalid("placementStrategy", text)
    if spec.default.controller:
        return _invalid(f"{DEFAULT}.controller", "a daemon job has no controller task")
    return None


def _check_service(spec: JobSpec) -> Refused | None:
    for name, given in (
        ("maximumRunningInstances", spec.maximum_running),
        ("minimumRunningInstances", spec.minimum_running),
        ("maxRunningTime", spec.max_running_time_s),
    ):
        if given:
            text = f"{name[0].upper()}{name[1:]} should be 0 for stateless job"
            return _invalid(f"sla.{name}", text)
    if spec.revocable and not spec.preemptible:
        return _invalid("sla.revocable", "revocable job must be preemptible")
    if spec.gang_together:
        return _invalid("labels", f"{GANG_LABEL}: a service has no gang")
    if spec.room_first and not spec.is_daemon:
        return _invalid("labels", f"{DAEMON_FIRST_LABEL}: {NO_DAEMON}")
    return None


def _check_batch(spec: JobSpec) -> Refused | None:
    if spec.maximum_running > spec.instances:
        text = "Job specified MaximumRunningInstances > InstanceCount"
        return _invalid("sla.maximumRunningInstances", text)
    if spec.minimum_running > (spec.maximum_running or spec.instances):
        text = "Job specified MinimumRunningInstances > MaximumRunningInstances"
        return _invalid("sla.minimumRunningInstances", text)
    if spec.gang > GANG_MAX:
        text = f"a gang of more than {GANG_MAX} instances is not supported"
        return _invalid("sla.minimumRunningInstances", text)
    if spec.room_first:
        return _invalid("labels", f"{DAEMON_FIRST_LABEL}: {NO_DAEMON}")
    if spec.progress_s:
        return _invalid("labels", f"{PROGRESS_LABEL}: only a service has workflows")
    if spec.healthy_after_s:
        return _invalid("labels", f"{HEALTHY_LABEL}: only a service waits before it runs again")
    if spec.gang_together and not spec.gang:
        return _invalid("labels", f"{GANG_LABEL}: there is no gang: {NO_GANG}")
    return None


def check_waits(spec: JobSpec, *, now: float) -> Refused | None:
    """Return the refusal for the first rule on waits, deadline or notices that the spec breaks
    now, or None."""
    if not (spec.after or spec.deadline or spec.unique or spec.throttle or spec.notify):
        return None
    if spec.deadline is not None and 0 < spec.deadline.at <= now:
        return _invalid("labels", f"peloton.deadline: {spec.deadline.text} has passed")
    return None


def updated(known: JobSpec, wanted: JobSpec) -> JobSpec:
    """Return the spec of a job after an update: what clients may not change stays."""
    return msgspec.structs.replace(
        wanted,
        name=known.name,
        owner=known.owner,
        pool=known.pool,
        default=known.default,
        job_type=known.job_type,
        labels=known.labels,
        has_default=known.has_default,
        own_configs=known.own_configs + wanted.own_configs,
        after=known.after,
        deadline=known.deadline,
        unique=known.unique,
        throttle=known.throttle,
        notify=known.notify,
        gang_together=known.gang_together,
        strategy=known.strategy,
        inventories=known.inventories,
        room_first=known.room_first,
        healthy_after_s=known.healthy_after_s,
        minimum_running=_minimum(known, wanted),
        config_version=known.config_version + 1,
    )


def _minimum(known: JobSpec, wanted: JobSpec) -> int:
    """Return the minimum of running instances: a gang stays as it was created."""
    return known.minimum_running if known.gang or wanted.gang else wanted.minimum_running


def check_instances(spec: JobSpec, overrides: Iterable[Override], *, own: int) -> Refused | None:
    """Return the refusal for the first rule that the config of an instance breaks, or None.

    `own` counts the instances with a config of their own: if not all have one, the default must be
    valid by itself.
    """
    below: set[int] = set()
    for override in overrides:
        if not 0 <= override.instance < spec.instances:
            text = f"instance {override.instance} is not below {spec.instances}"
            return _invalid(f"instanceConfig[{override.instance}]", text)
        config = effective(spec.default, override.config)
        field = f"instanceConfig[{override.instance}]"
        refused = _check_config(spec, config, field=field, instance=override.instance)
        if refused is None and override.instance < spec.minimum_running:
            below.add(override.instance)
            refused = _check_preemption(spec, config, field=field, instance=override.instance)
        if refused is not None:
            return refused
    if len(below) < spec.minimum_running:
        refused = _check_preemption(
            spec, spec.default, field=DEFAULT, instance=_first_missing(below)
        )
        if refused is not None:
            return refused
    if own >= spec.instances:
        return None
    if not spec.has_default:
        return _invalid(DEFAULT, f"missing task config for instance {own}")
    instance = 1 if spec.instances > 1 else 0
    return _check_config(spec, spec.default, field=DEFAULT, instance=instance)


def _first_missing(numbers: set[int]) -> int:
    return next(number for number in range(len(numbers) + 1) if number not in numbers)


def _check_preemption(
    spec: JobSpec, config: TaskConfig, *, field: str, instance: int
) -> Refused | None:
    """Refuse configs by which instances that have to run together are not preempted alike."""
    if config.preemptible is None or config.preemptible == spec.preemptible:
        return None
    text = (
        f"can't override the preemption policy of a task: instance {instance} is one of the "
        f"{spec.minimum_running} of minimumRunningInstances"
    )
    return _invalid(f"{field}.preemptionPolicy", text)


def _check_config(
    spec: JobSpec, config: TaskConfig, *, field: str, instance: int
) -> Refused | None:
    prefix = f"Invalid config for instance {instance}, "
    if config.command is None:
        text = f"missing command info for instance {instance}"
        if field == DEFAULT:  # other instances lack it too; the first half is the original's text
            text += ": the default config has none"
        return _invalid(f"{field}.command", text)
    for port in config.ports:
        if not port.name:
            return _invalid(f"{field}.ports", prefix + "Port name is missing")
        if port.number == 0 and not port.env:
            text = prefix + "Env name is missing for dynamic port"
            return _invalid(f"{field}.ports", text)
    if config.controller and instance != 0:
        return _invalid(f"{field}.controller", prefix + "only task 0 can be controller task")
    wrong = _no_volume(spec, config) if config.volume is not None else ""
    if wrong:
        return _invalid(f"{field}.volume", prefix + wrong)
    for name, text in _of_another_type(spec, config).items():
        return _invalid(f"{field}.{name}", prefix + text)
    return None


LOGS = ("stdout", "stderr")
"""Files of every sandbox; of several containers each has its own, behind its name and a dot."""
NOTICES = ("preempted", "checkpointed")
"""What a run is told before it ends, and what it tells then."""


def _no_volume(spec: JobSpec, config: TaskConfig) -> str:
    """Return why an instance of the job cannot have a volume; empty if it can.

    A link to a secret in a volume would outlive its run, and lead where the last run wants it.
    """
    if spec.is_daemon or not spec.is_service:
        return f"only a job of type {SERVICE} may have volumes"
    if spec.revocable:
        return "a revocable job cannot have volumes"
    assert config.volume is not None
    first = next((part for part in config.volume.path.split("/") if part), "")
    logs = {f"{one.name}.{log}" for one in config.containers for log in LOGS}
    if first in {*LOGS, *NOTICES, *logs}:
        return f"the path {config.volume.path!r} of the volume meets the file {first} of the run"
    why = clash([config.volume.path, *(one.path for one in config.secrets)])
    return f"paths of the volume and of secrets: {why}" if why else ""


def _of_another_type(spec: JobSpec, config: TaskConfig) -> dict[str, str]:
    """Return what is only for jobs of another type, by field, with what is wrong about it."""
    if spec.is_service:
        found = {
            "preemptionPolicy.killOnPreempt": (
                config.kill_on_preempt,
                "Task preemption policy should be false for stateless job",
            ),
            "executor": (
                config.executor is True,
                "an executor is not supported: a task is a command",
            ),
            "retry": (
                config.retry is not None,
                "is of batch jobs: a service is run again however it ends",
            ),
        }
    else:
        found = {
            "healthCheck": (config.health_check, "Batch job task should not set health check "),
            "executor": (
                config.has_executor or bool(config.containers),
                "Batch job task should not include executor config",
            ),
        }
    return {name: text for name, (given, text) in found.items() if given}


def _invalid(field: str, text: str) -> Refused:
    return Refused(INVALID, text, f"config.{field}")
