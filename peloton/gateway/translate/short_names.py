"""The short names of three services, which every published client uses, and their descriptors.

Clients may ask by reflection what they may call: each service is described in another package as
well, with methods of the same messages.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

SHORT = {
    "peloton.api.v0.job.JobManager": "peloton.api.job.JobManager",
    "peloton.api.v0.task.TaskManager": "peloton.api.task.TaskManager",
    "peloton.api.v0.respool.ResourceManager": "peloton.api.respool.ResourceManager",
}
"""The names under which every client the original published calls these three."""


def add_short(service: ServiceDescriptor, short: str) -> None:
    """Let the service be found under its short name; a repeat changes nothing."""
    package, _, name = short.rpartition(".")
    copied = descriptor_pb2.ServiceDescriptorProto()
    service.CopyToProto(copied)
    copied.name = name
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package.replace('.', '/')}/{name.lower()}.proto",
        package=package,
        syntax="proto3",
        dependency=[service.file.name],
        service=[copied],
    )
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
