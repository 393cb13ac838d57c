"""The demo: a cluster in a temporary folder, HelloWorld on it, and nothing left afterwards.

Shows a newcomer real processes, the task table and an output. The demo runs the very commands that
a person would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from peloton.cli import main as command_line
from peloton.cli.jobs.local import LEAVE, LocalCluster
from peloton.sdk.errors import PelotonError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
POOL = "/HelloWorldPool"
INSTANCES = 10
RUN_MAX_S = 60.0
OF_SIGNAL = 128
"""Exit codes of a program that a signal ended begin here."""


class DemoFailed(Exception):
    """A step that did not go as the demo promises."""


class Interrupted(BaseException):
    """A signal to leave arrived; its number is the argument."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if all instances succeeded."""
    parser = argparse.ArgumentParser(
        prog="script/demo",
        description="Start a cluster in a temporary folder, run HelloWorld on it, stop it.",
    )
    parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="peloton-demo-") as folder:
        demo = Demo(Path(folder))
        for number in LEAVE:
            signal.signal(number, demo.leave)
        try:
            return demo.run()
        except (DemoFailed, PelotonError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        except Interrupted as signalled:
            return OF_SIGNAL + int(signalled.args[0])
        except BrokenPipeError:
            # The reader had enough (`| head`): as if SIGPIPE had ended the program.
            command_line.discard_stdout()
            return OF_SIGNAL + signal.SIGPIPE


class Demo:
    """A run of the demo. However it ends, the cluster is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starting = True
        self._signalled = 0

    def run(self) -> int:
        """Start the cluster, show HelloWorld, stop the cluster."""
        print("Starting a cluster of three virtual hosts in a temporary folder …", flush=True)
        cluster = LocalCluster(self._folder, ("--hosts", "3"))
        try:
            self._starting = False
            if self._signalled:
                raise Interrupted(self._signalled)
            _hello(cluster.address())
        finally:
            for number in LEAVE:
                signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave it running
            with contextlib.suppress(OSError):  # nobody may read any more
                print("\nStopping the cluster and all it started …", flush=True)
            if not cluster.stop():
                raise DemoFailed("the cluster did not stop in time, and was killed")
        print("\nThe same by hand is in README.md, `First run`. To type `peloton` alone:")
        print(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH", flush=True)
        return 0

    def leave(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; one during the start of the cluster waits until that is complete."""
        self._signalled = number
        if not self._starting:
            raise Interrupted(number)


def _hello(address: str) -> None:
    _show(address, "respool", "create", POOL, str(EXAMPLES / "hello_world_pool.yaml"))
    created = _show(
        address, "--output", "name", "job", "create", POOL, str(EXAMPLES / "hello_world_job.yaml")
    )
    job = created.split()[-1].rpartition("/")[2]
    state = _follow(address, job)
    _show(address, "task", "list", job)
    print("\nThe stdout of instance 0:")
    _show(address, "task", "logs", job, "0")
    done = state.get("SUCCEEDED", 0)
    print(f"\nHelloWorld: {done} of {INSTANCES} SUCCEEDED", flush=True)
    if done != INSTANCES:
        raise DemoFailed(f"not all instances succeeded: {state}")


def _follow(address: str, job: str) -> dict[str, int]:
    """Show the counts by state until the job has ended."""
    until = time.monotonic() + RUN_MAX_S
    shown = None
    while time.monotonic() < until:
        info = json.loads(_run(address, "--output", "json", "job", "get", job))
        runtime = info["jobInfo"]["runtime"]
        counts = {name: int(count) for name, count in runtime.get("taskStats", {}).items()}
        if counts != shown:
            shown = counts
            line = "  ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count)
            print(f"  {runtime['state']:12}{line}", flush=True)
        if runtime["state"] in ("SUCCEEDED", "FAILED", "KILLED"):
            return counts
        time.sleep(0.2)
    raise DemoFailed(f"the job did not end within {RUN_MAX_S:g} s")


def _show(address: str, *args: str) -> str:
    print("\n$ peloton " + " ".join(shlex.quote(arg) for arg in args), flush=True)
    text = _run(address, *args)
    print(text, end="" if text.endswith("\n") else "\n", flush=True)
    return text


def _run(address: str, *args: str) -> str:
    command = [sys.executable, "-P", "-m", "peloton", "--api", address, *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_MAX_S)
    except subprocess.TimeoutExpired:
        raise DemoFailed(f"{' '.join(args)} did not end within {RUN_MAX_S:g} s") from None
    if done.returncode != 0:
        raise DemoFailed(f"{' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
