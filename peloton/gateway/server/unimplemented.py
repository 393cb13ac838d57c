"""Calls of the contract that are not implemented yet, each refused by its name.

The texts, one for each call, are made from the services of the generated modules, so that no list
has to be maintained.
"""

from __future__ import annotations

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.job.svc import job_svc_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.respool.svc import respool_svc_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.task.svc import task_svc_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2
from peloton.api.v1alpha.host.svc import host_svc_pb2 as host_svc_v1_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as respool_svc_v1_pb2
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as volume_svc_v1_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.gateway.translate.short_names import SHORT
from peloton.private.eventstream import eventstream_pb2
from peloton.private.eventstream.v1alpha.eventstreamsvc import eventstreamsvc_pb2
from peloton.private.hostmgr.hostsvc import hostsvc_pb2
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2
from peloton.private.jobmgrsvc import jobmgrsvc_pb2
from peloton.private.qos.v1alpha1 import qos_pb2
from peloton.private.resmgrsvc import resmgrsvc_pb2

MODULES = (
    job_pb2, task_pb2, respool_pb2,
    host_svc_pb2, job_svc_pb2, respool_svc_pb2, task_svc_pb2, update_svc_pb2, volume_svc_pb2,
    admin_svc_pb2, host_svc_v1_pb2, stateless_svc_pb2, pod_svc_pb2, respool_svc_v1_pb2,
    volume_svc_v1_pb2, watch_svc_pb2,
    eventstream_pb2, eventstreamsvc_pb2, hostsvc_pb2, hostmgr_svc_pb2, jobmgrsvc_pb2, qos_pb2,
    resmgrsvc_pb2,
)  # fmt: skip


def services() -> dict[str, list[str]]:
    """Return every service of the contract under its full names, with its methods."""
    found: dict[str, list[str]] = {}
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            methods = [method.name for method in service.methods]
            found[service.full_name] = methods
            if service.full_name in SHORT:
                found[SHORT[service.full_name]] = methods
    return found


def refusals() -> dict[str, str]:
    """Return the answer to each call of the contract that nothing serves, by its path."""
    return {
        f"/{service}/{method}": f"{service.rpartition('.')[2]}.{method} is not supported yet"
        for service, methods in services().items()
        for method in methods
    }
