"""Translates a stateless job's spec of v1alpha to the config of a service, and back.

A JobSpec becomes a JobConfig of v0, so that everything behind it is one path. Paths of fields are
translated too, so that errors name what the client wrote. The config's own rules are checked later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from peloton.api.v0 import peloton_pb2 as v0
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.pod_specs import pod_spec_of, refuse_images, to_task
from peloton.gateway.translate.several_containers import is_several, whole_pod

_PATH = re.compile(r"config(\.\w+(\[\d+\])?)*(?=: )", re.ASCII)
_INSTANCE = re.compile(r"instanceConfig\[(\d+)\]")
_ONE_OF_SEVERAL = re.compile(r"(init_containers|containers)(?:\[(\d+)\])?")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")
_RENAMED = {"respoolID": "respool_id", "healthCheck": "liveness_check"}
_OF_CONTAINER = ("name", "resource", "container", "command", "healthCheck", "ports", "executor")
"""Fields of a task's config that a pod has in its container."""


# ---- to the config of a job ----


def to_config_v0(
    sent: stateless.JobSpec, *, images_run: bool = False, on_mesos: bool = False
) -> job.JobConfig:
    """Return the config of a service that is this job; raises BadField, naming the field.

    `images_run`: the cluster runs images, and so far not those of several containers. `on_mesos`:
    as of `to_config`.
    """
    found = job.JobConfig(
        name=sent.name,
        type=job.SERVICE,
        owner=sent.owner,
        owningTeam=sent.owning_team,
        ldapGroups=sent.ldap_groups,
        description=sent.description,
        instanceCount=sent.instance_count,
        respoolID=v0.ResourcePoolID(value=sent.respool_id.value),
    )
    if sent.HasField("sla"):
        found.sla.priority = sent.sla.priority
        found.sla.preemptible = sent.sla.preemptible
        found.sla.revocable = sent.sla.revocable
        found.sla.maximumUnavailableInstances = sent.sla.maximum_unavailable_instances
    for label in sent.labels:
        found.labels.add(key=label.key, value=label.value)
    slack = sent.sla.revocable
    if sent.HasField("default_spec"):
        field = "spec.default_spec"
        default = _on_slack(sent.default_spec, slack, field=field)
        if images_run:
            refuse_images(default, field)
        found.defaultConfig.CopyFrom(to_task(default, field, on_mesos=on_mesos))
    for instance in sorted(sent.instance_spec):
        field = f"spec.instance_spec[{instance}]"
        own = _on_slack(sent.instance_spec[instance], slack, field=field)
        own = whole_pod(own, sent.default_spec)
        # Over several containers, also a single one replaces all of them.
        several = is_several(sent.default_spec) and len(own.containers) > 0
        if images_run:
            refuse_images(own, field)
        one = to_task(own, field, several=several, on_mesos=on_mesos)
        found.instanceConfig[instance].CopyFrom(one)
    return found


def _on_slack(sent: pod.PodSpec, slack: bool, *, field: str) -> pod.PodSpec:
    """Return the pod with the job's choice of slack, which holds for all of its pods."""
    if sent.revocable and not slack:
        raise BadField(f"{field}.revocable", "is decided by spec.sla.revocable, which is not set")
    found = pod.PodSpec()
    found.CopyFrom(sent)
    found.revocable = slack
    return found


def spec_text(text: str, sent: stateless.JobSpec) -> str:
    """Return a text about the config, in terms of the spec that the client wrote."""
    return _PATH.sub(lambda found: spec_path(found[0], sent), text, count=1)


def spec_path(path: str, sent: stateless.JobSpec) -> str:
    """Return the path in the spec of a field of the config; other paths are left as they are."""
    head, *rest = path.split(".")
    if head != "config":
        return path
    found = ["spec"]
    own = _INSTANCE.fullmatch(rest[0]) if rest else None
    if own is not None:
        number = int(own[1])
        known = sent.instance_spec.get(number, sent.default_spec)
        found += [f"instance_spec[{number}]", *_in_pod(rest[1:], known)]
    elif rest and rest[0] == "defaultConfig":
        found += ["default_spec", *_in_pod(rest[1:], sent.default_spec)]
    elif rest != ["type"]:  # which is not the client's to choose
        found += map(_snake, rest)
    return ".".join(found)


def _in_pod(path: list[str], sent: pod.PodSpec) -> list[str]:
    if path[:1] == ["environment"] and path[1:]:
        return [part.replace("variables", "environment") for part in path[1:]]
    if "command" in path and sent.mesos_spec.uris:
        at = path.index("command") + 1
        if path[at:] and path[at].partition("[")[0] == "uris":
            return ["mesos_spec", *map(_snake, path[at:])]
    if not path or path[0].partition("[")[0] not in _OF_CONTAINER:
        return [_snake(part) for part in path]
    one = _ONE_OF_SEVERAL.fullmatch(path[1]) if path[0] == "executor" and path[1:] else None
    if one is None:
        if path[0] == "executor" and not any(each.HasField("executor") for each in sent.containers):
            return ["mesos_spec", "executor_spec", *path[1:]]
        return ["containers[0]", *_in_container(path, sent.containers, at=0)]
    among, at = getattr(sent, one[1]), int(one[2] or 0)
    return [path[1], *(_in_container(path[2:], among, at=at) if path[2:] else ())]


def _in_container(path: list[str], among: Sequence[pod.ContainerSpec], *, at: int) -> list[str]:
    container = among[at] if at < len(among) else pod.ContainerSpec()
    first, rest = path[0], path[1:]
    found = [_snake(first), *map(_snake, rest)]
    if first == "container" and not container.HasField("container"):
        name, bracket, number = rest[0].partition("[") if rest else ("", "", "")
        found = [f"volume_mounts{bracket}{number}" if name == "volumes" else "image"]
    elif first == "command" and not container.HasField("command"):
        if rest[:1] == ["environment"]:
            found = [part.replace("variables", "environment") for part in rest[1:]]
        else:
            found = ["entrypoint", *rest]
    return found


def _snake(part: str) -> str:
    name, bracket, rest = part.partition("[")
    known = _RENAMED.get(name) or _CAPITAL.sub(r"_\1", name).lower()
    return known + bracket + rest


# ---- back ----


def job_spec_of(config: job.JobConfig) -> stateless.JobSpec:
    """Return the spec of a job by its stored config."""
    found = partial_spec_of(config)
    found.name = config.name
    found.owner = config.owner
    found.owning_team = config.owningTeam
    found.ldap_groups.extend(config.ldapGroups)
    found.description = config.description
    for label in config.labels:
        found.labels.add(key=label.key, value=label.value)
    if config.HasField("defaultConfig"):
        found.default_spec.CopyFrom(pod_spec_of(config.defaultConfig))
    for instance in config.instanceConfig:
        own = pod_spec_of(config.instanceConfig[instance])
        found.instance_spec[instance].CopyFrom(own)
    return found


def partial_spec_of(config: job.JobConfig) -> stateless.JobSpec:
    """Return the part of a spec that the original keeps in memory."""
    found = stateless.JobSpec(instance_count=config.instanceCount)
    if config.HasField("changeLog"):
        change = config.changeLog
        found.revision.version = change.version
        found.revision.created_at = change.createdAt
        found.revision.updated_at = change.updatedAt
        found.revision.updated_by = change.updatedBy
    if config.HasField("sla"):
        found.sla.priority = config.sla.priority
        found.sla.preemptible = config.sla.preemptible
        found.sla.revocable = config.sla.revocable
        found.sla.maximum_unavailable_instances = config.sla.maximumUnavailableInstances
    if config.HasField("respoolID"):
        found.respool_id.value = config.respoolID.value
    return found
