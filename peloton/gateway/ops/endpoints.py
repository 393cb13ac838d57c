"""Where the instances of a service can be reached: for proxies, and for people.

Listed are the instances that run, are well and are ready, with the ports that their hosts picked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format

from peloton.actors.host.messages import GetHost
from peloton.actors.host.state import Host
from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.messages import InstanceView
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access.guard import CallCode, CallEnded
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.server.calls import CallContext
from peloton.gateway.translate.health_checks import does_its_work
from peloton.gateway.translate.texts import client_name, known_job, pod_name
from peloton.gateway.translate.translate_run import Translator
from peloton.ops.v1 import endpoints_pb2 as wire
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key

STATUSES = {CallCode.NOT_FOUND: HTTPStatus.NOT_FOUND}


class Endpoints:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def ListEndpoints(self, sent: wire.ListEndpointsRequest, context: Context) -> Any:
        """Return the available instances of a job, by instance."""
        job = self._cluster_client.job(known_job(sent.job_id), context)
        if job is None:
            end(context, Code.NOT_FOUND, text="job not found")
        found = wire.ListEndpointsResponse(
            job_id=client_name(job.summary.job), name=job.spec.name, instances=job.spec.instances
        )
        views = [*self._available(job, context)]
        hosts = self._hosts(views, context)
        for view, info in views:
            found.endpoints.append(endpoint_of(view, info, host=hosts.get(Key(view.host))))
        return found

    def _available(
        self, job: JobView, context: Context
    ) -> Iterator[tuple[InstanceView, task.TaskInfo]]:
        to_wire = Translator(client_name(job.summary.job), job.spec)
        for view in self._cluster_client.instances(job, context=context):
            if view.state == "RUNNING" and does_its_work(view):
                yield view, to_wire.info(view)

    def _hosts(
        self, views: list[tuple[InstanceView, task.TaskInfo]], context: Context
    ) -> dict[Key, Host]:
        """Return the hosts that have picked ports: only they know which."""
        named = dict.fromkeys(
            Key(view.host)
            for view, _ in views
            if view.host and any(not port.number for port in view.config.ports)
        )
        answers = self._cluster_client.each(((host, GetHost()) for host in named), context)
        pairs = zip(named, answers, strict=True)
        return {host: answer for host, answer in pairs if isinstance(answer, Host)}


def endpoints_json(cluster: Region, job: str) -> tuple[bytes, HTTPStatus]:
    """Return the endpoints as JSON, and the status of HTTP; refusals have an `error`."""
    sent = wire.ListEndpointsRequest(job_id=job)
    try:
        found = Endpoints(ClusterClient(cluster)).ListEndpoints(sent, CallContext())
    except CallEnded as ended:
        status = STATUSES.get(ended.code, HTTPStatus.SERVICE_UNAVAILABLE)
        return json.dumps({"error": ended.details}).encode() + b"\n", status
    shown = json_format.MessageToDict(
        found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    # Sorted, so that it changes only where the endpoints do.
    return json.dumps(shown, sort_keys=True).encode() + b"\n", HTTPStatus.OK


def endpoint_of(view: InstanceView, info: task.TaskInfo, *, host: Host | None) -> wire.Endpoint:
    """Return one instance; a port that its host has not told is left out."""
    runtime = info.runtime
    run = runtime.mesosTaskId.value
    found = wire.Endpoint(
        instance=view.instance,
        pod=pod_name(info.jobId.value, view.instance),
        run=run,
        host=runtime.host,
        ports=runtime.ports,
        health=task.HealthState.Name(runtime.healthy),
    )
    there = host.runs.get(run) if host is not None else None
    if there is not None:
        for port, number in zip(view.config.ports, there.ports, strict=False):
            found.ports[port.name] = number
    return found
