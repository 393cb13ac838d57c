"""peloton.api.v1alpha PodService: the pods of jobs, each by its name.

Names of pods become instances. Commands go to the job, queries to its slices.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from peloton.actors.job.messages import (
    NONE_TO_START,
    TERMINATED,
    InstancesOrdered,
    JobStopped,
    JobView,
)
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.rollout_messages import ASKED_JOB, VIOLATES_SLA, VIOLATES_TEXT
from peloton.actors.task.messages import TaskGoals, parse_pod
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.gateway.cluster.cluster_client import RETRY_S, ClusterClient, Code, Context, end
from peloton.gateway.cluster.files_anywhere import FilesAnywhere
from peloton.gateway.cluster.instances import Instances
from peloton.gateway.cluster.named_jobs import NOT_FOUND, refuse
from peloton.gateway.cluster.run_files import NoFiles, files_of
from peloton.gateway.translate.actor_keys import parse_number
from peloton.gateway.translate.texts import canonical, known_job, pod_name, pod_parts
from peloton.gateway.v1alpha.pod_status import pod_event_of, pod_info_of, pod_status_of
from peloton.runtime.vocabulary import Bits, Key, Refused

NO_SUCH_POD = "pod not found"


class PodAddress(NamedTuple):
    """The job of a pod, and the number of its instance, whether they exist or not."""

    job_id: str
    instance: int

    @property
    def job(self) -> Key:
        """Return the key of the job."""
        found = known_job(self.job_id)
        assert found is not None, self
        return found

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the range of this pod alone."""
        return ((self.instance, self.instance + 1),)


class Pod(NamedTuple):
    """A pod that exists, with its job."""

    job: JobView
    view: InstanceView


class PodService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, sandboxes: FilesAnywhere, *, images_run: bool = False
    ) -> None:
        self._cluster_client = cluster_client
        self._sandboxes = sandboxes
        self._instances = Instances(cluster_client, images_run=images_run)

    def StartPod(self, sent: svc.StartPodRequest, context: Context) -> Any:
        """Begin a new run of a pod that was stopped; one that was not goes on."""
        address = _address_of(sent, context)
        pod = self._existing(address, context)
        wrong = why_not_startable(pod.view)
        if wrong:
            end(context, Code.INVALID_ARGUMENT, text=wrong)
        self._order(address, again=False, sent=sent, context=context)
        return svc.StartPodResponse()

    def StopPod(self, sent: svc.StopPodRequest, context: Context) -> Any:
        """End a pod, which stays so until it is started."""
        address = _address_of(sent, context)
        self._existing(address, context)
        answer = self._instances.stop(
            address.job, address.ranges, ended=Bits(), sent=sent, context=context
        )
        if not isinstance(answer, JobStopped):
            refuse(context, answer)
        return svc.StopPodResponse()

    def RestartPod(self, sent: svc.RestartPodRequest, context: Context) -> Any:
        """Begin a new run of a pod that was not stopped; a pod that runs is killed first."""
        address = _address(sent.pod_name.value)
        if isinstance(address, str):
            end(context, Code.INVALID_ARGUMENT, text="invalid pod name")
        pod = self._existing(address, context)
        if sent.check_sla and pod.job.spec.is_service:
            self._restart_if_spared(pod, sent, context=context)
            return svc.RestartPodResponse()
        self._order(address, again=True, sent=sent, context=context)
        return svc.RestartPodResponse()

    def GetPod(self, sent: svc.GetPodRequest, context: Context) -> Any:
        """Return a pod as it is, and the runs it had before: `limit` runs in all, 0 for every
        one."""
        pod = self._existing(_address_of(sent, context), context)
        now = self._instances.now(pod.job, pod.view, context=context)
        runs = self._instances.runs(pod.job, pod.view)[1 : sent.limit or None]
        ended = zip(runs, reversed(pod.view.runs), strict=False)  # no more than were asked for
        return svc.GetPodResponse(
            current=pod_info_of(
                now, pod.view.outcome, told=pod.view.containers, status_only=sent.status_only
            ),
            previous=[
                pod_info_of(run, past.outcome, status_only=sent.status_only) for run, past in ended
            ],
        )

    def GetPodCache(self, sent: svc.GetPodCacheRequest, context: Context) -> Any:
        """Return the status and the labels of a pod; nothing is cached that could be stale."""
        address = _address_of(sent, context)
        job = self._cluster_client.job(address.job, context)
        if job is None:
            end(context, Code.NOT_FOUND, text="job not found in cache")
        view = self._instances.one(job, address.instance, context=context)
        if view is None:
            end(context, Code.NOT_FOUND, text="task not found in cache")
        now = self._instances.now(job, view, context=context)
        found = svc.GetPodCacheResponse(
            status=pod_status_of(now, view.outcome, told=view.containers)
        )
        for label in now.config.labels:
            found.labels.add(key=label.key, value=label.value)
        return found

    def GetPodEvents(self, sent: svc.GetPodEventsRequest, context: Context) -> Any:
        """Return the events of one run of a pod, the newest by default; of an unknown pod,
        nothing."""
        address = _address_of(sent, context)
        only = _run(sent, address, context=context) if sent.pod_id.value else None
        pod = self._found(address, context)
        if pod is None:
            return svc.GetPodEventsResponse()
        events = self._instances.events(pod.job, pod.view, runs_max=1, only=only)
        return svc.GetPodEventsResponse(events=map(pod_event_of, events))

    def DeletePodEvents(self, sent: svc.DeletePodEventsRequest, context: Context) -> Any:
        """Hide the events until now of one run of a pod."""
        address = _address_of(sent, context)
        run = _run(sent, address, context=context)
        pod = self._existing(address, context)
        answer = self._instances.drop_events(
            pod.job, address.instance, runs=(run, True), sent=sent, context=context
        )
        if isinstance(answer, Refused):
            end(context, Code.FAILED_PRECONDITION, text=answer)
        return svc.DeletePodEventsResponse()

    def RefreshPod(self, sent: svc.RefreshPodRequest, context: Context) -> Any:
        """Only whether it exists: nothing is cached that could be stale, and goals are resent."""
        self._existing(_address_of(sent, context), context)
        return svc.RefreshPodResponse()

    def BrowsePodSandbox(self, sent: svc.BrowsePodSandboxRequest, context: Context) -> Any:
        """Return where the files of a run are, of the newest one by default, to be fetched over
        HTTP."""
        address = _address_of(sent, context)
        if sent.pod_id.value and not _names_run(sent.pod_id.value):
            text = f"{sent.pod_id.value!r} is not the id of a pod"
            end(context, Code.INVALID_ARGUMENT, text=text, field="pod_id")
        pod = self._existing(address, context)
        runs = self._instances.runs(pod.job, pod.view)
        found = files_of(
            self._sandboxes, address.job_id, view=pod.view, runs=runs, named=sent.pod_id.value
        )
        if found.missing is NoFiles.NOT_RUN:
            end(context, Code.ABORTED, text=f"pod has not been run: {found.text}")
        if found.missing is not None:
            away = found.missing is NoFiles.AWAY
            end(context, Code.UNAVAILABLE if away else Code.NOT_FOUND, text=found.text)
        return svc.BrowsePodSandboxResponse(
            hostname=found.hostname,
            port=found.port,
            paths=found.paths,
            mesos_master_hostname=found.manager[0],
            mesos_master_port=found.manager[1],
        )

    # ---- inside ----

    def _found(self, address: PodAddress, context: Context) -> Pod | None:
        job = self._cluster_client.job(address.job, context)
        if job is None:
            return None
        view = self._instances.one(job, address.instance, context=context)
        return None if view is None else Pod(job, view)

    def _existing(self, address: PodAddress, context: Context) -> Pod:
        """Return the pod; end the call if there is none."""
        job = self._cluster_client.job(address.job, context)
        if job is None:
            end(context, Code.NOT_FOUND, text=NOT_FOUND)
        view = self._instances.one(job, address.instance, context=context)
        if view is None:
            end(context, Code.NOT_FOUND, text=NO_SUCH_POD)
        return Pod(job, view)

    def _restart_if_spared(self, pod: Pod, sent: Any, *, context: Context) -> None:
        """Restart a pod if its service has enough others; end the call if it has not."""
        instance = pod.view.instance
        answer = self._instances.restart_if_spared(pod.job, instance, sent=sent, context=context)
        if not isinstance(answer, Refused):
            return
        if answer.code == VIOLATES_SLA:
            end(context, Code.ABORTED, text=VIOLATES_TEXT)
        if answer.code == ASKED_JOB:
            # The slice has asked the job for what other slices do not use.
            end(context, Code.UNAVAILABLE, text=VIOLATES_TEXT, retry_s=RETRY_S)
        refuse(context, answer)

    def _order(self, address: PodAddress, *, again: bool, sent: Any, context: Context) -> None:
        answer = self._instances.start(
            address.job, address.ranges, again=again, sent=sent, context=context
        )
        if not isinstance(answer, InstancesOrdered):
            _refuse(context, answer)


def why_not_startable(view: InstanceView) -> str:
    """Return why a pod can never be started again; empty if it can."""
    return "cannot start a pod going to be deleted" if view.goal == TaskGoals.DELETED else ""


def _refuse(context: Context, refused: Refused) -> NoReturn:
    if refused.code == TERMINATED and refused.text == NONE_TO_START:
        text = "cannot start pod in terminated job"
        end(context, Code.INVALID_ARGUMENT, text=text)
    refuse(context, refused)


def _address(name: str) -> PodAddress | str:
    """Return the job and the instance of a pod's name; or what is wrong with the name."""
    job_id, number = pod_parts(name)
    if not job_id:
        return f"invalid pelotonTaskID {name}"
    instance = parse_number(number)
    if instance is None or pod_name(job_id, instance) != name.lower():
        return f"unable to parse instanceID {number}"
    return PodAddress(job_id, instance)


def _address_of(sent: Any, context: Context) -> PodAddress:
    """Return the job and the instance of a request; end the call if its name is none of a pod."""
    found = _address(sent.pod_name.value)
    if isinstance(found, str):
        end(context, Code.INVALID_ARGUMENT, text=found)
    return found


def _names_run(named: str) -> bool:
    """Return whether some pod may have a run of that name."""
    parts = parse_pod(named)
    return parts is not None and parts[2] > 0 and canonical(parts[0].split("/")[1]) is not None


def _run(sent: Any, address: PodAddress, *, context: Context) -> int:
    """Return the number of the run that a request names; end the call if it is no run of this
    pod."""
    named = sent.pod_id.value
    parts = parse_pod(named)
    run = parts[2] if parts is not None else 0
    if not run or named.lower() != pod_name(address.job_id, address.instance, run=run):
        text = f"{named!r} is not a run of pod {pod_name(address.job_id, address.instance)}"
        end(context, Code.INVALID_ARGUMENT, text=text, field="pod_id")
    return run
