"""Where the files of a run are, for the calls of several services that browse sandboxes.

Turns an instance and the name of a run into paths, or into why there are none. It must not open a
file.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.task.messages import SLICE_SIZE, crowd_key, parse_pod
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.sandboxes import SandboxFiles


class NoFiles(enum.Enum):
    """Why there are no files."""

    NO_RUN = enum.auto()  # the instance had no such run
    NOT_RUN = enum.auto()  # it is on no host yet
    GONE = enum.auto()  # they were removed, or are not here


class RunFiles(NamedTuple):
    """The files of a run at an address, or why there are none."""

    hostname: str = ""
    port: str = ""
    paths: Sequence[str] = ()
    missing: NoFiles | None = None
    text: str = ""


def files_of(
    sandboxes: SandboxFiles, job_id: str, *, view: InstanceView, runs: list[task.TaskInfo],
    named: str,
) -> RunFiles:  # fmt: skip
    """The files of the run of that name, of the newest one if it is empty.

    `runs`: those of the instance that are listed, the newest first.
    """
    info = _named(runs, named)
    run = info.runtime.mesosTaskId.value if info is not None else _earlier(named, job_id, view=view)
    if not run:
        return RunFiles(missing=NoFiles.NO_RUN, text=f"{named!r} is no run of this instance")
    if info is not None and not info.runtime.host:
        state = task.TaskState.Name(info.runtime.state)
        text = f"instance {view.instance} is {state}: there are no files before it runs"
        return RunFiles(missing=NoFiles.NOT_RUN, text=text)
    removed = sandboxes.why_removed(run)
    if info is None and not removed and not sandboxes.has(run):
        removed = f"the files of run {run} are not here any more, nor is it listed"
    if removed:
        return RunFiles(missing=NoFiles.GONE, text=removed)
    host, port = sandboxes.address
    return RunFiles(host, str(port), sandboxes.paths(run))


def _named(runs: list[task.TaskInfo], run: str) -> task.TaskInfo | None:
    """The run of that id; the current one if none is named."""
    found = [info for info in runs if not run or info.runtime.mesosTaskId.value == run]
    return found[0] if found else None


def _earlier(named: str, job_id: str, *, view: InstanceView) -> str:
    """A run of the instance that is not listed any more: its files may be there for longer."""
    parts = parse_pod(named)
    if parts is None:
        return ""
    crowd, member, run = parts
    place = crowd_key(job_id, view.instance // SLICE_SIZE), view.instance % SLICE_SIZE
    return named if (crowd, member) == place and 0 < run < view.run else ""
