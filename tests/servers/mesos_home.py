"""Where Mesos is here: `MESOS_HOME`, else on `PATH`.

What is found is run once: a build for another system is as good as none. It fetches nothing; where
it finds nothing it says where it has looked. Tests with a real Mesos are skipped then; a scripted
master, recorded events and the simulated conversation carry the contract.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.cache import NotInstalled

PARTS = ("sbin/mesos-master", "sbin/mesos-agent", "libexec/mesos/mesos-executor")
VERSION_TIMEOUT_S = 60


@functools.cache
def home() -> Path:
    """The folder with sbin/ and libexec/mesos. Raises NotInstalled."""
    found = _by_variable() or _on_path()
    if found is None:
        raise NotInstalled("no Mesos: MESOS_HOME is not set, and no mesos-master is on PATH")
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
    """The same for a test, which is skipped where there is none."""
    try:
        return home()
    except NotInstalled as missing:
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
