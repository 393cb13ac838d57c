"""podman itself, where this machine can run one: with a store of its own, and a tiny image.

Turns "is there a podman, and does a container run" into a program that tests may use, or None. It
must leave neither containers nor images behind, and touch none of others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from peloton.backends.keeper.containers import ulimits

_APPLETS = ("sh", "sleep", "echo", "true", "ls", "id", "cat", "env", "touch")
_TRIAL_S_MAX, _GONE_S_MAX = 60.0, 60.0


class RealPodman(NamedTuple):
    """A program that calls podman with the store of the tests."""

    program: Path


@contextlib.contextmanager
def real_podman(image: str) -> Iterator[RealPodman | None]:
    """One that runs containers of this image, or None."""
    podman, busybox = shutil.which("podman"), _static_busybox()
    if podman is None or busybox is None or os.geteuid() != 0:
        yield None
        return
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="peloton-engine-"))
    try:
        yield _ready(folder, Path(podman), image=image, busybox=Path(busybox))
    finally:
        program = folder / "bin" / "podman"
        if program.exists():
            subprocess.run([program, "rm", "--all", "--force"], capture_output=True, check=False)
        _remove(folder)


def _remove(folder: Path) -> None:
    """With all it holds, however long a container that was killed still writes there."""
    until_s = time.monotonic() + _GONE_S_MAX
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=time.monotonic() < until_s)  # at last it says why


def _static_busybox() -> str | None:
    found = shutil.which("busybox")
    if found is None:
        return None
    linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False)
    return found if linked.returncode != 0 or "statically" in linked.stdout else None


def _ready(folder: Path, podman: Path, *, image: str, busybox: Path) -> RealPodman | None:
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox.resolve(), "bin/busybox")
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    # runc works with both versions of control groups mounted, crun does not.
    runtimes = [name for name in ("runc", "crun") if shutil.which(name)]
    for runtime in runtimes:
        program = _program(folder, podman, runtime=runtime)
        if _works(program, archive, image=image):
            return RealPodman(program)
    return None


def _program(folder: Path, podman: Path, *, runtime: str) -> Path:
    path = folder / "bin" / "podman"
    path.parent.mkdir(exist_ok=True)
    places = f"--root {folder}/s --runroot {folder}/r --tmpdir {folder}/t"
    rest = f"--cgroup-manager cgroupfs --events-backend file --runtime {runtime}"
    path.write_text(f'#!/bin/sh\nSTORAGE_DRIVER=vfs exec {podman} {places} {rest} "$@"\n')
    path.chmod(0o755)
    return path


def _works(program: Path, archive: Path, *, image: str) -> bool:
    """Whether a container runs as the keeper starts them."""
    limits = [f"--ulimit={name}={low}:{high}" for name, (low, high) in ulimits().items()]
    run = ["run", "--rm", "--network=host", "--memory=67108864b", *limits, image, "true"]
    try:
        for words in (["import", str(archive), image], run):
            done = subprocess.run(
                [program, *words], capture_output=True, timeout=_TRIAL_S_MAX, check=False
            )
            if done.returncode != 0:
                return False
    except (OSError, subprocess.TimeoutExpired):
        return False
    return True
