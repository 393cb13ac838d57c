"""VolumeService of both API versions: the volumes of services, found, and deleted once unwanted.

Volumes are read from the ledgers of hosts. Those of a job are looked for on the hosts that its
slices name, also if these were forgotten, and on every other host: it may have lost instances, or
all. A single one is looked for first where its slice says. One that is not where its instance has
its home, while there is such a home, is an orphan, named `JOB-INSTANCE@HOST`. Before a deletion the
slice is asked, then the host, so that no volume is deleted that an instance is to come back to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.actors.host.machine_messages import (
    NO_VOLUME,
    VOLUME_HELD,
    DeleteVolume,
    HostVolume,
    crowd_of_owner,
    instance_with,
    volume_name,
)
from peloton.actors.job.slice.messages import (
    LeaveVolume,
    ListVolumeHomes,
    VolumeHomesListed,
    VolumeLeft,
    slice_key,
)
from peloton.actors.task.messages import crowd_key, slice_of_crowd
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts, with_runs
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.server.calls import is_hidden
from peloton.gateway.translate.texts import (
    canonical,
    client_name,
    job_of_volume,
    known_job,
    pod_name,
    rfc3339,
)
from peloton.runtime.vocabulary import Key, Refused

VOLUME_NOT_FOUND = "volume not found"
FoundVolume = tuple[str, Key, HostVolume]
"""Name, host, and what the host says of it."""


class VolumeService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, *, volume: Any, svc: Any) -> None:
        """Take the generated modules of the values (`volume`) and of the calls (`svc`)."""
        self._cluster_client = cluster_client
        self._volume, self._svc = volume, svc
        self._first = "id" in svc.GetVolumeRequest.DESCRIPTOR.fields_by_name

    def ListVolumes(self, sent: Any, context: Context) -> Any:
        """Return the volumes of a job, also of one that was deleted."""
        job_id = canonical((sent.jobId if self._first else sent.job_id).value)
        if job_id is None:
            end(context, Code.INVALID_ARGUMENT, text="jobID is not valid UUID")
        found = self._svc.ListVolumesResponse()
        for one in self._of_job(job_id, context, everywhere=True):
            found.volumes[one[0]].CopyFrom(self._info(one))
        return found

    def GetVolume(self, sent: Any, context: Context) -> Any:
        name = self._named(sent)
        return self._svc.GetVolumeResponse(result=self._info(self._known(name, context)))

    def DeleteVolume(self, sent: Any, context: Context) -> Any:
        """Remove a volume for ever; refused while its instance runs, or is to run again."""
        name = self._named(sent)
        name, _, where = name.partition("@")
        owner = instance_with(name)
        if owner is None:
            end(context, Code.NOT_FOUND, text=VOLUME_NOT_FOUND)
        if where:
            _, host, _ = self._known(f"{name}@{where}", context)
            self._ask(host, DeleteVolume(name), sent=sent, context=context)
            return self._svc.DeleteVolumeResponse()
        crowd, member = crowd_of_owner(*owner)
        left = self._ask(slice_of_crowd(crowd), LeaveVolume(member), sent=sent, context=context)
        known = left.host if isinstance(left, VolumeLeft) else ""
        if known:
            # The host may have been given up, and its volume with it.
            self._ask(Key(known), DeleteVolume(name), sent=sent, context=context, gone=True)
        else:
            _, host, _ = self._known(name, context)
            self._ask(host, DeleteVolume(name), sent=sent, context=context)
        return self._svc.DeleteVolumeResponse()

    def _ask(
        self, to: Key, message: Any, *, sent: Any, context: Context, gone: bool = False
    ) -> Any:
        request = request_of(sent, context)
        answer = self._cluster_client.ask(to, message, context=context, request=request)
        if isinstance(answer, Refused) and not (gone and answer.code == NO_VOLUME):
            held = answer.code == VOLUME_HELD
            code = Code.FAILED_PRECONDITION if held else Code.NOT_FOUND
            text = answer.text if held else VOLUME_NOT_FOUND
            end(context, code, text=Refused(answer.code, text))
        return answer

    def _named(self, sent: Any) -> str:
        return str((sent.id if self._first else sent.volume_id).value)

    def _known(self, name: str, context: Context) -> FoundVolume:
        job_id = job_of_volume(name)
        looked = (self._of_job(job_id, context, everywhere=all_) for all_ in (False, True))
        known = next((one for found in looked for one in found if one[0] == name), None)
        if known is None:
            end(context, Code.NOT_FOUND, text=VOLUME_NOT_FOUND)
        return known

    def _of_job(self, job_id: str, context: Context, *, everywhere: bool) -> list[FoundVolume]:
        """Return the volumes by instance; without `everywhere`, on the hosts that its slices
        name."""
        if known_job(job_id) is None or is_hidden(context):
            return []
        homes = self._homes(job_id, context)
        hosts = dict.fromkeys(homes.values())
        if everywhere:
            views = all_hosts(self._cluster_client, context)
            hosts |= dict.fromkeys(view.summary.host for view in views)
        return _told_apart(self._on([*hosts], job_id, context=context), homes)

    def _homes(self, job_id: str, context: Context) -> dict[str, Key]:
        """Return the hosts where instances of a job have their volumes, by the names of these."""
        job = self._cluster_client.job(known_job(job_id), context)
        numbers = range(job.slices if job is not None else 0)
        asks = ((slice_key(job_id, number), ListVolumeHomes()) for number in numbers)
        found: dict[str, Key] = {}
        for number, answer in enumerate(self._cluster_client.each(asks, context)):
            if isinstance(answer, VolumeHomesListed):
                crowd = crowd_key(job_id, number)
                found |= {volume_name(crowd, member): host for member, host in answer.members}
        return found

    def _on(self, hosts: list[Key], job_id: str, *, context: Context) -> list[FoundVolume]:
        answers = with_runs(self._cluster_client, hosts, context=context, removed=True)
        return [
            (name, host, one)
            for host, answer in answers
            for name, one in answer.volumes.items()
            if job_of_volume(name) == job_id
        ]

    def _info(self, found: FoundVolume) -> Any:
        name, host, one = found
        states = self._volume.VolumeState
        prefix = "" if self._first else "VOLUME_STATE_"
        made = rfc3339(one.made_at)
        job_id, instance = instance_with(name.partition("@")[0]) or ("", 0)
        created = states.Value(f"{prefix}CREATED")
        wanted = states.Value(f"{prefix}DELETED") if one.deleting else created
        if self._first:
            return self._volume.PersistentVolumeInfo(
                id={"value": name},
                jobId={"value": job_id},
                instanceId=instance,
                hostname=client_name(host),
                state=created,
                goalState=wanted,
                sizeMB=one.config.size_mb,
                containerPath=one.config.path,
                createTime=made,
                updateTime=made,
            )
        return self._volume.PersistentVolumeInfo(
            volume_id={"value": name},
            pod_name={"value": pod_name(job_id, instance)},
            hostname=client_name(host),
            state=created,
            desired_state=wanted,
            size_mb=one.config.size_mb,
            container_path=one.config.path,
            create_time=made,
            update_time=made,
        )


def _told_apart(found: list[FoundVolume], homes: Mapping[str, Key]) -> list[FoundVolume]:
    """Return the volumes by instance.

    Of several with one name the one at home keeps it, or else the newest.
    """

    def before(one: FoundVolume) -> tuple[int, str, bool, float, Key]:
        name, host, volume = one
        return len(name), name, homes.get(name, host) != host, -volume.made_at, host

    told: dict[str, FoundVolume] = {}
    for name, host, volume in sorted(found, key=before):
        orphan = name in told or homes.get(name, host) != host
        shown = f"{name}@{client_name(host)}" if orphan else name
        told[shown] = (shown, host, volume)
    return [*told.values()]
