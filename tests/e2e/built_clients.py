"""The clients of examples/clients, built in the user's cache folder.

Turns the name of a language into a command that runs its client. Each example has a folder for what
it is built from, the protos and the interpreter included, so that checkouts of several versions do
not build over each other; a build that was cut short is no build.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers.cache import NotInstalled, locked

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "examples" / "clients"
PROTO = ROOT / "proto"
BUILD_TIMEOUT_S = 540
UNUSED_S = 7 * 86_400
"""A build that nobody has used for so long goes with the next one of its language."""
GO_VERSION_MIN = (1, 19)
JAVA_VERSION_MIN = 17
PACKAGES = "golang-go openjdk-17-jdk-headless maven"
GO_FOLDERS = "/usr/local/go/bin", "/usr/lib/go/bin"
"""Where Go is often installed without being in PATH."""
MADE = {"build", "gen", "target", "__pycache__"}
"""What builds in place leave in an example."""
COMMANDS = {
    "python": ("build/venv/bin/python", "client.py"),
    "go": ("build/client",),
    "java": ("java", "-jar", "target/client.jar"),
}
"""How the client of each language is run, in its folder."""
BUILDS = {
    "python": ("./make",),
    "go": ("./make",),
    "java": ("mvn", "-B", "-q", f"-Dproto={PROTO}", "package"),
}


@contextlib.contextmanager
def built(language: str) -> Iterator[Path]:
    """The folder of a built client, which no other test run changes meanwhile."""
    with locked(f"client-{language}") as cache:
        digest = _digest(language)
        folder = cache / f"client-{language}-{digest[:12]}"
        stamp = folder / "made-from"
        if not stamp.is_file() or stamp.read_text() != digest:
            for old in cache.glob(f"client-{language}-*/made-from"):
                if time.time() - old.stat().st_mtime > UNUSED_S:
                    shutil.rmtree(old.parent)
            _build(language, folder)
            stamp.write_text(digest)
        elif os.access(stamp, os.W_OK):
            stamp.touch()  # it is in use
        yield folder


def environment() -> dict[str, str]:
    """What builds and clients are run with."""
    return {
        **os.environ,
        "PATH": os.pathsep.join((os.environ["PATH"], *GO_FOLDERS)),
        "PROTO": str(PROTO),
        # The compiler of this Python is there wherever the tests are.
        "PROTOC": f"{sys.executable} -m grpc_tools.protoc",
        "PYTHON": sys.executable,
    }


def _digest(language: str) -> str:
    """What a build is made from. Not where from: it serves each checkout of this user."""
    sha = hashlib.sha256(f"{sys.base_prefix} {sys.version}".encode())
    for path in (*_sources(language), *sorted(PROTO.rglob("*.proto"))):
        content = path.read_bytes()
        sha.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return sha.hexdigest()


def _sources(language: str) -> list[Path]:
    """The files of an example but for its page, without what was built in place."""
    paths = (SOURCES / language).rglob("*")
    files = (path for path in paths if path.is_file() and path.suffix != ".md")
    return sorted(path for path in files if not MADE & {*path.relative_to(SOURCES).parts})


def _build(language: str, folder: Path) -> None:
    missing = missing_tools(language)
    if missing:
        text = f"{missing}. On Debian or Ubuntu: apt-get install {PACKAGES}"
        raise NotInstalled(f"the {language} client cannot be built: {text}")
    began_s = time.monotonic()
    print(f"building the {language} client in {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    for source in _sources(language):
        target = folder / source.relative_to(SOURCES / language)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    done = subprocess.run(
        BUILDS[language],
        capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
        cwd=folder, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, f"the {language} client:\n{done.stdout}{done.stderr}"
    took_s = time.monotonic() - began_s
    print(f"built the {language} client in {took_s:.0f} s", file=sys.stderr, flush=True)


def missing_tools(language: str) -> str:
    """What the machine lacks to build a client, in words; empty if nothing."""
    if language == "go":
        least = ".".join(map(str, GO_VERSION_MIN))
        found = _version(("go", "version"), r"go(\d+)\.(\d+)")
        return "" if found >= GO_VERSION_MIN else f"Go {least} or newer"
    if language == "java":
        if not _version(("mvn", "-v"), r"Maven (\d+)"):
            return "Maven"
        jdk = _version(("javac", "-version"), r"javac (\d+)")
        return "" if jdk >= (JAVA_VERSION_MIN,) else f"a JDK {JAVA_VERSION_MIN} or newer"
    return ""


def _version(command: tuple[str, ...], pattern: str) -> tuple[int, ...]:
    """What a tool says of itself; nothing where there is none."""
    path = shutil.which(command[0], path=environment()["PATH"])
    if path is None:
        return ()
    told = subprocess.run(
        [path, *command[1:]], capture_output=True, text=True, check=False, env=environment()
    )
    found = re.search(pattern, told.stdout + told.stderr)
    return tuple(map(int, found.groups())) if found else ()


def main() -> None:
    """Build all; what is missing is named."""
    failed = False
    for language in COMMANDS:
        try:
            with built(language):
                pass
        except (NotInstalled, AssertionError) as error:
            failed = True
            print(error, file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
