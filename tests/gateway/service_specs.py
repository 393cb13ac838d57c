"""Specs of services as clients of v1alpha write them, for the tests of several calls."""

from __future__ import annotations

from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.pod_specs import pod_spec_of
from tests.gateway.fleet_fixture import default_config


def pod_spec(seconds: float = 600.0, **more: Any) -> pod.PodSpec:
    """A pod whose runs take so long; fields by name."""
    found = pod_spec_of(default_config(seconds))
    container = found.containers[0]
    # The newer form alone.
    for older in ("command", "container", "executor"):
        container.ClearField(older)
    found.MergeFrom(pod.PodSpec(**more))
    return found


def service_spec(pool: str, instances: int = 2, **more: Any) -> stateless.JobSpec:
    """A service of a pool; fields by name."""
    found = stateless.JobSpec(
        name="service",
        owner="owner",
        owning_team="team",
        instance_count=instances,
        respool_id={"value": pool},
        default_spec=more.pop("default_spec", pod_spec()),
    )
    found.MergeFrom(stateless.JobSpec(**more))
    return found


def creation(spec: stateless.JobSpec, **more: Any) -> svc.CreateJobRequest:
    """The request for such a job."""
    return svc.CreateJobRequest(spec=spec, **more)
