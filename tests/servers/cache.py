"""The servers' libraries, fetched once for each `pom.xml` into the user's cache folder.

Turns the pom into one folder of jars that both servers run from. It must not fetch again what is
there, and a fetch that was cut short must not look like a whole one: jars are copied beside the
folder, which then appears with one rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

POM = Path(__file__).parent / "pom.xml"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JAVA_VERSION_MIN = 17
PACKAGES = "openjdk-17-jre-headless maven"
FETCH_TIMEOUT_S = 540
CACHE_VARIABLE = "PELOTON_TESTS_CACHE"
"""Where another account has filled the folder; this one only reads it."""


class NotInstalled(Exception):
    """The machine lacks what a server takes; the text says what to install."""


def cache_folder() -> Path:
    """What is fetched and built once for a machine."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("peloton"))


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """The folder, while no other test run of this machine changes what is of this name."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # Who may only read it can lock it as well.
    fd = os.open(folder / f"{name}.lock", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(fd)


def libraries() -> Path:
    """The folder of jars; the first call on a machine fetches them (half a minute)."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"servers-{digest}"
    if folder.is_dir():
        return folder
    print(f"fetching the libraries of ZooKeeper and Cassandra into {folder}", file=sys.stderr)
    # Of two test runs that begin at once the second waits, and mostly finds it done.
    with locked("servers"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NotInstalled(f"Maven is missing. On Debian or Ubuntu: apt-get install {PACKAGES}")
    part = Path(tempfile.mkdtemp(prefix="servers-part-", dir=folder.parent))
    try:
        # Maven writes where it is told and beside the pom it reads: the pom is copied for that.
        shutil.copy(POM, part / "pom.xml")
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(part / "pom.xml"), COPY,
             "-DincludeScope=runtime", f"-DoutputDirectory={part / 'lib'}"],
            capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise NotInstalled(f"Maven could not fetch the servers:\n{done.stdout}{done.stderr}")
        os.replace(part / "lib", folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def java() -> str:
    """A Java that runs both servers. Raises NotInstalled."""
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java" if home else None, shutil.which("java")]
    seen = []
    for path in candidates:
        if path is None or not os.access(path, os.X_OK):
            continue
        told = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "(\d+)', told.stderr)
        if version is not None and int(version[1]) >= JAVA_VERSION_MIN:
            return path
        seen.append(f"{path} is version {version[1] if version else 'unknown'}")
    found = "; ".join(seen) or "there is none"
    raise NotInstalled(
        f"Java {JAVA_VERSION_MIN} or newer is needed, {found}. "
        f"On Debian or Ubuntu: apt-get install {PACKAGES}"
    )


if __name__ == "__main__":
    try:
        libraries()
    except NotInstalled as missing:
        sys.exit(str(missing))
