"""The container engine of this machine that runs the images of tasks.

Turns settings and the machine into the path of podman or docker, and into texts for people. No
container is run: an engine is asked for the list of those that run, which needs all that a
container needs except an image.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import NamedTuple

from peloton.backends.keeper.engine import ENGINES
from peloton.backends.process import RUN
from peloton.failures import CannotStart
from peloton.settings.daemon import DaemonSettings

ANSWER_S_MAX = 30.0
"""An engine that is a server may just be starting."""
_WHY_CHARS_MAX = 200


class FoundEngine(NamedTuple):
    """The path of an engine that answers; empty if none does, with what was looked for."""

    path: str
    why: str = ""


def find_engine(which: Callable[[str], str | None] = shutil.which) -> FoundEngine:
    """Return the first that answers."""
    tried: list[str] = []
    for name in ENGINES:
        path = which(name)
        if path is None:
            tried.append(f"no {name} in PATH")
            continue
        why = _silent(path)
        if not why:
            return FoundEngine(path)
        tried.append(f"{path} does not work ({why})")
    return FoundEngine("", "; ".join(tried))


def check_task_images(
    settings: DaemonSettings, find: Callable[[], FoundEngine] = find_engine
) -> str:
    """Return the engine that the tasks of these settings need; empty if none.

    Raises CannotStart if none answers.
    """
    if not _needs_engine(settings):
        return ""
    found = find()
    if not found.path:
        raise CannotStart(f"backend.process.images: {RUN} needs podman or docker: {found.why}")
    return found.path


def problem(settings: DaemonSettings, find: Callable[[], FoundEngine] = find_engine) -> str:
    """Return why images that must be run cannot be; empty if they can."""
    try:
        check_task_images(settings, find)
    except CannotStart as error:
        return str(error)
    return ""


def engine_text(find: Callable[[], FoundEngine] = find_engine) -> str:
    """Return one line: the engine by which this machine can run images."""
    found = find()
    return f"containers: {found.path}" if found.path else f"no containers: {found.why}"


def runs_images(settings: DaemonSettings) -> bool:
    """Return whether tasks with an image are containers."""
    process = settings.backend.process
    return process is not None and process.images == RUN


def _needs_engine(settings: DaemonSettings) -> bool:
    return runs_images(settings) and "hostmgr" in settings.roles


def _silent(path: str) -> str:
    """Return why an engine does not answer, in its own words; empty if it does."""
    try:
        done = subprocess.run(
            [path, "ps", "--quiet"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer within {ANSWER_S_MAX:g} s"
    except OSError as error:
        return error.strerror or str(error)
    if done.returncode == 0:
        return ""
    said = " ".join(done.stderr.decode(errors="replace").split())
    return said[:_WHY_CHARS_MAX] or f"exit code {done.returncode}"
