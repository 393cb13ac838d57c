"""peloton.ops.v1.Outputs: what many instances have printed, kept until it was read.

Short files are returned as they are, others by name. One answer is limited in size, and other
machines are not waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.messages import InstanceView
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.files_anywhere import FilesAnywhere
from peloton.gateway.cluster.sandboxes import CUSTOMARY
from peloton.gateway.translate.reasons import has_ended
from peloton.gateway.translate.texts import client_name, known_job, pod_name
from peloton.ops.v1 import outputs_pb2 as wire
from peloton.runtime.far_files import FilesRemoved, NoFile
from peloton.runtime.vocabulary import Key

LEASE_S_MAX = 300.0
INSTANCES_MAX = 1000
NAMES_MAX = 100
"""Of files, in one call."""
DATA_BYTES_MAX = 64 * 1024
"""Of a file that is in an answer; longer ones are named."""
ANSWER_BYTES_MAX = 2 * 1024 * 1024
"""Of the files in an answer: with more than that it ends."""
ANSWER_S_MAX = 1.0
"""How long files are looked at for one answer; a disk may be slow."""

Leases: TypeAlias = Callable[[str, float], bool]
"""Keeps what the runs of a job leave for so many seconds; whether it can."""


class Outputs:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, files: FilesAnywhere, *, lease: Leases
    ) -> None:
        self._cluster_client, self._files, self._lease = cluster_client, files, lease

    def HoldOutputs(self, sent: wire.HoldOutputsRequest, context: Context) -> Any:
        """Keep what the runs of a job leave for a while."""
        if not 0.0 < sent.for_s <= LEASE_S_MAX:  # nor is it no number
            text = f"must be > 0 and ≤ {LEASE_S_MAX:g}, got {sent.for_s:g}"
            end(context, Code.INVALID_ARGUMENT, text=text, field="for_s")
        job = self._job(sent.job_id, context)
        leased = self._lease(client_name(job.summary.job), sent.for_s)
        return wire.HoldOutputsResponse(for_s=sent.for_s if leased else 0.0)

    def ReadOutputs(self, sent: wire.ReadOutputsRequest, context: Context) -> Any:
        """Return what these instances have printed, as much of it as one answer holds."""
        if not 0 <= sent.last - sent.first < INSTANCES_MAX:
            text = f"must be ≥ first and name {INSTANCES_MAX} instances at most, got {sent.last}"
            end(context, Code.INVALID_ARGUMENT, text=text, field="last")
        for field, most in (("had", INSTANCES_MAX), ("names", NAMES_MAX)):
            if len(getattr(sent, field)) > most:
                text = f"at most {most}, got {len(getattr(sent, field))}"
                end(context, Code.INVALID_ARGUMENT, text=text, field=field)
        job = self._job(sent.job_id, context)
        had = {number for one in sent.had for number in _within(one, sent)}
        views = self._cluster_client.instances(job, sent.first, context=context, stop=sent.last + 1)
        answer = wire.ReadOutputsResponse()
        names, size, until = sent.names or CUSTOMARY, 0, time.monotonic() + ANSWER_S_MAX
        for view in views:
            is_over = has_ended(view)
            if view.instance in had or not (is_over or sent.running):
                if sent.in_order and not is_over:
                    break
                continue
            if size > ANSWER_BYTES_MAX or time.monotonic() > until:
                answer.next = view.instance
                break
            found = answer.outputs.add()
            self._put(found, view, job=client_name(job.summary.job), names=names)
            size += sum(len(file.data) for file in found.files)
        return answer

    def _job(self, job_id: str, context: Context) -> JobView:
        job = self._cluster_client.job(known_job(job_id), context)
        if job is None:
            end(context, Code.NOT_FOUND, text="job not found")
        return job

    def _put(
        self, found: wire.InstanceOutput, view: InstanceView, *, job: str, names: Iterable[str]
    ) -> None:
        run, host = pod_name(job, view.instance, run=view.run), client_name(Key(view.host))
        found.instance, found.run, found.state = view.instance, run, view.state
        outcome = view.outcome
        if outcome is not None and outcome.exit_code is not None:
            found.exit_code = outcome.exit_code
        found.signal = outcome.signal if outcome is not None else ""
        if not host:
            return  # it never ran
        if self._files.far_of(host) is not None:
            found.files.extend(wire.OutputFile(name=name, longer=True) for name in names)
            return
        try:
            self._put_here(found, names)
        except NoFile as gone:
            removed = isinstance(gone, FilesRemoved)
            found.missing = str(gone) if removed else f"the files of run {run} are not there"

    def _put_here(self, found: wire.InstanceOutput, names: Iterable[str]) -> None:
        """Add the output of a run on this machine. Raises NoFile if there is nothing of the run
        at all."""
        here, run = self._files.here, found.run
        if not here.leaves_files:
            return
        there = 0
        for name in names:
            try:
                with self._files.open(f"/{run}/{name}") as file:
                    short = file.size <= DATA_BYTES_MAX
                    data = b"".join(file.pieces(0)) if short else b""
            except FilesRemoved:
                raise
            except NoFile:
                continue
            there += 1
            found.files.add(name=name, data=data, longer=not short)
        if not there and not here.has(run):
            raise NoFile(run)


def _within(one: wire.Instances, sent: wire.ReadOutputsRequest) -> range:
    return range(max(one.first, sent.first), min(one.last, sent.last) + 1)
