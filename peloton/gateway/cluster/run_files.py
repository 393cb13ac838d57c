"""Where the files of a run are, for the calls of several services that browse sandboxes.

An instance and the name of a run give paths, or the reason why there are none.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.task.messages import SLICE_SIZE, crowd_key, parse_pod
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.files_anywhere import FilesAnywhere
from peloton.runtime.far_files import FarFiles, FarRun, FilesAway, NoFile

OVER = (task.SUCCEEDED, task.FAILED, task.KILLED, task.LOST)


class NoFiles(enum.Enum):
    """The reason why there are no files."""

    NO_RUN = enum.auto()  # the instance had no such run
    NOT_RUN = enum.auto()  # it is on no host yet
    GONE = enum.auto()  # they were removed, or are not here
    AWAY = enum.auto()  # the machine that has them does not answer


class RunFiles(NamedTuple):
    """The files of a run at an address, or why there are none.

    `manager`: address and port of the manager of its host, if that is a cluster of its own.
    """

    hostname: str = ""
    port: str = ""
    paths: Sequence[str] = ()
    missing: NoFiles | None = None
    text: str = ""
    manager: tuple[str, str] = ("", "")


def files_of(
    sandboxes: FilesAnywhere, job_id: str, *, view: InstanceView, runs: list[task.TaskInfo],
    named: str,
) -> RunFiles:  # fmt: skip
    """Return the files of the run of that name, or of the newest one if it is empty.

    `runs`: those of the instance that are listed, the newest first.
    """
    info = _named(runs, named)
    run = info.runtime.mesosTaskId.value if info is not None else _earlier(named, job_id, view=view)
    if not run:
        return RunFiles(missing=NoFiles.NO_RUN, text=f"{named!r} is not a run of this instance")
    if info is not None and not info.runtime.host:
        state = task.TaskState.Name(info.runtime.state)
        text = f"instance {view.instance} is {state}: there are no files before it runs"
        return RunFiles(missing=NoFiles.NOT_RUN, text=text)
    far = sandboxes.far_of(info.runtime.host) if info is not None else None
    if info is not None and far is not None:
        return _far_files(sandboxes, far, info=info)
    here = sandboxes.here
    removed = here.why_removed(run)
    if info is None and not removed and not here.has(run):
        removed = f"the files of run {run} are gone, and the run is no longer listed"
    if removed:
        return RunFiles(missing=NoFiles.GONE, text=removed)
    host, port = here.address
    return RunFiles(host, str(port), here.paths(run))


def _far_files(sandboxes: FilesAnywhere, far: FarFiles, *, info: task.TaskInfo) -> RunFiles:
    runtime = info.runtime
    run = FarRun(runtime.host, runtime.mesosTaskId.value)
    try:
        paths = sandboxes.far_paths(far, run, over=runtime.state in OVER)
    except NoFile as gone:
        return RunFiles(missing=NoFiles.GONE, text=str(gone))
    except FilesAway as away:
        return RunFiles(missing=NoFiles.AWAY, text=str(away))
    host, port = sandboxes.here.address
    return RunFiles(host, str(port), paths, manager=far.manager())


def _named(runs: list[task.TaskInfo], run: str) -> task.TaskInfo | None:
    """Return the run of that id; the current one if none is named."""
    found = [info for info in runs if not run or info.runtime.mesosTaskId.value == run]
    return found[0] if found else None


def _earlier(named: str, job_id: str, *, view: InstanceView) -> str:
    """Return a run of the instance that is not listed any more: its files may be there for
    longer."""
    parts = parse_pod(named)
    if parts is None:
        return ""
    crowd, member, run = parts
    place = crowd_key(job_id, view.instance // SLICE_SIZE), view.instance % SLICE_SIZE
    return named if (crowd, member) == place and 0 < run < view.run else ""
