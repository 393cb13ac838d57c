"""Where Mesos is here: `MESOS_HOME`, else on `PATH`, else an archive beside the checkout.

An archive is unpacked once into the user's cache folder, where it appears with one rename. What is
found is run once: a build for another system is as good as none. It must not fetch anything, and
where it finds nothing it says where it has looked. Tests skip then, unless PELOTON_NEED_MESOS is
set.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import platformdirs
import pytest

from tests.servers.cache import NotInstalled

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT.parent / "shared" / "servers" / "mesos"
PATTERN = "mesos-*.tar.xz"
NEEDED = "PELOTON_NEED_MESOS"
PARTS = ("sbin/mesos-master", "sbin/mesos-agent", "libexec/mesos/mesos-executor")
VERSION_TIMEOUT_S = 60


@functools.cache
def home() -> Path:
    """The folder with sbin/ and libexec/mesos. Raises NotInstalled."""
    found = _by_variable() or _on_path() or _from_archive()
    if found is None:
        raise NotInstalled(
            "Mesos is missing: MESOS_HOME is not set, there is no mesos-master on PATH, "
            f"and no {PATTERN} in {ARCHIVES}"
        )
    missing = [part for part in PARTS if not os.access(found / part, os.X_OK)]
    if missing:
        raise NotInstalled(f"{found} is no Mesos: it has no {', '.join(missing)}")
    told = subprocess.run(
        [found / PARTS[0], "--version"], capture_output=True, text=True,
        timeout=VERSION_TIMEOUT_S, check=False, env=environment(),
    )  # fmt: skip
    if told.returncode:
        raise NotInstalled(f"the Mesos in {found} does not run here: {told.stderr.strip()}")
    return found


def needed_home() -> Path:
    """The same for a test, which is skipped where there is none and that is no error."""
    try:
        return home()
    except NotInstalled as missing:
        if os.environ.get(NEEDED):
            raise
        pytest.skip(str(missing))


def environment() -> dict[str, str]:
    """Ours without what Mesos would take for its own options."""
    strange = ("MESOS_", "LIBPROCESS_", "GLOG_")
    return {key: value for key, value in os.environ.items() if not key.startswith(strange)}


def _by_variable() -> Path | None:
    told = os.environ.get("MESOS_HOME")
    return Path(told).absolute() if told else None


def _on_path() -> Path | None:
    master = shutil.which("mesos-master")
    return Path(master).resolve().parents[1] if master else None


def _from_archive() -> Path | None:
    archives = sorted(ARCHIVES.glob(PATTERN))
    if not archives:
        return None
    with archives[-1].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    cache = Path(platformdirs.user_cache_dir("peloton"))
    folder = cache / f"mesos-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "mesos.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"unpacking {archives[-1].name} into {folder}", file=sys.stderr)
            _unpack(archives[-1], folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix="mesos-part-", dir=folder.parent))
    try:
        with tarfile.open(archive) as opened:
            # The first releases of 3.11 have no filters.
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            opened.extractall(part, **safe)
        # All of it lies in one folder, whose name says the version.
        (inner,) = part.iterdir()
        os.replace(inner, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    try:
        home()
    except NotInstalled as missing:
        sys.exit(str(missing))
