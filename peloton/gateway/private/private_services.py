"""The services that the original's own tools and tests call, each with its descriptor.

Methods that have no meaning here are answered by `unimplemented.py`.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.gateway.private.event_streams import (
    STREAM_CLIENTS,
    EventStreamService,
    PodEvents,
    PodEventStreamService,
)
from peloton.gateway.private.host_manager import HostManagerService
from peloton.gateway.private.host_watches import HostWatches
from peloton.gateway.private.internal_hosts import InternalHostService
from peloton.gateway.private.internal_tasks import ResourceManagerService
from peloton.gateway.private.job_cache import JobManagerService
from peloton.gateway.private.kill_switch import KillSwitch
from peloton.gateway.private.run_statuses import status_stream
from peloton.private.eventstream import eventstream_pb2
from peloton.private.eventstream.v1alpha.eventstreamsvc import eventstreamsvc_pb2
from peloton.private.hostmgr.hostsvc import hostsvc_pb2
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2
from peloton.private.jobmgrsvc import jobmgrsvc_pb2
from peloton.private.resmgrsvc import resmgrsvc_pb2


def private_services(
    cluster_client: ClusterClient, feed: ClusterFeed, *, kills: KillSwitch
) -> list[tuple[ServiceDescriptor, Any]]:
    """Return each service and its servicer."""
    statuses = status_stream(feed, STREAM_CLIENTS)
    hosts = InternalHostService(cluster_client, HostWatches(feed, statuses), kills=kills)
    served = (
        (hostsvc_pb2, "InternalHostService", hosts),
        (
            hostmgr_svc_pb2,
            "HostManagerService",
            HostManagerService(cluster_client, PodEvents(statuses), kills=kills),
        ),
        (resmgrsvc_pb2, "ResourceManagerService", ResourceManagerService(cluster_client)),
        (jobmgrsvc_pb2, "JobManagerService", JobManagerService(cluster_client)),
        (eventstream_pb2, "EventStreamService", EventStreamService(statuses)),
        (eventstreamsvc_pb2, "EventStreamService", PodEventStreamService(statuses)),
    )
    return [
        (module.DESCRIPTOR.services_by_name[name], servicer) for module, name, servicer in served
    ]
