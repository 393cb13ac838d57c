"""JobService.GetReplaceJobDiff: what another spec would do to which pods.

A spec and the configs of instances give ranges of instances, which are closed in answers. The rules
of a config are not checked, as in the original.
"""

from __future__ import annotations

from functools import partial

from peloton.actors.host.run_spec import SecretRef
from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.task_config import TaskConfig, effective, same_config
from peloton.actors.job.spec import INSTANCES_MAX, with_secrets
from peloton.actors.resources import BadAmount
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.rollouts import closed_ranges
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.run_as import RunAs
from peloton.gateway.translate.stateless_specs import spec_text
from peloton.gateway.translate.translate_task import to_config
from peloton.gateway.v1alpha.stateless_replace import replacing_config

ANY_USER = RunAs(any_user=True)
"""Nothing is run, so whoever asks may name any."""


def replace_diff(
    cluster_client: ClusterClient, sent: stateless.JobSpec, *, view: JobView, context: Context
) -> svc.GetReplaceJobDiffResponse:
    """Return the instances that are new, gone, changed or as they were."""
    if not view.spec.is_service:
        text = "failed to validate spec update: job type is immutable"
        end(context, Code.INVALID_ARGUMENT, text=text)
    if sent.instance_count > INSTANCES_MAX:
        text = f"must be ≤ {INSTANCES_MAX}, got {sent.instance_count}"
        end(context, Code.INVALID_ARGUMENT, text=text, field="spec.instance_count")
    config = replacing_config(cluster_client, sent, view=view, context=context)
    try:
        wanted = _Wanted(config, view.spec.default.secrets, on_mesos=cluster_client.on_mesos)
    except (BadField, BadAmount) as error:
        text = f"invalid job spec: {spec_text(str(error), sent)}"
        end(context, Code.INVALID_ARGUMENT, text=text)
    then = sent.instance_count
    updated, unchanged, removed, there = [], [], [], set()
    for one in cluster_client.instances(view, context=context):
        there.add(one.instance)
        if one.instance >= then:
            removed.append(one.instance)
            continue
        same = wanted.is_same(one.instance, one.config)
        (unchanged if same else updated).append(one.instance)
    return svc.GetReplaceJobDiffResponse(
        instances_added=closed_ranges(k for k in range(then) if k not in there),
        instances_removed=closed_ranges(removed),
        instances_updated=closed_ranges(updated),
        instances_unchanged=closed_ranges(unchanged),
    )


class _Wanted:
    """The config that each instance is to have; raises BadField or BadAmount, naming the field."""

    def __init__(
        self, config: job.JobConfig, secrets: tuple[SecretRef, ...], *, on_mesos: bool
    ) -> None:
        read = partial(to_config, by=ANY_USER, on_mesos=on_mesos)
        self._slack = config.sla.revocable
        self._default = TaskConfig()
        if config.HasField("defaultConfig"):
            found = read(config.defaultConfig, "config.defaultConfig")
            self._default = with_secrets(found.on_slack() if self._slack else found, secrets)
        self._own: dict[int, TaskConfig] = {}
        for instance in sorted(config.instanceConfig):
            field = f"config.instanceConfig[{instance}]"
            own = read(config.instanceConfig[instance], field)
            own = own.on_slack() if self._slack else own
            self._own[instance] = effective(self._default, own)
        self._compared: dict[TaskConfig, bool] = {}

    def is_same(self, instance: int, config: TaskConfig) -> bool:
        """Return whether a run by this config of the instance may go on."""
        own = self._own.get(instance)
        if own is not None:
            return same_config(config, own)
        # Thousands of instances have the default, and few configs.
        found = self._compared.get(config)
        if found is None:
            found = self._compared[config] = same_config(config, self._default)
        return found
