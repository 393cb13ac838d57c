"""The demo: a cluster in a temporary folder, HelloWorld on it, and nothing left afterwards.

Turns one command into what a newcomer wants to see: real processes, the task table, an output. It
types the very commands that a person would; it must not use anything that they could not.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
POOL = "/HelloWorldPool"
INSTANCES = 10
START_MAX_S, RUN_MAX_S, STOP_MAX_S = 60.0, 60.0, 15.0


class DemoFailed(Exception):
    """What did not go as the demo promises."""


def main() -> int:
    """Run the demo; 0 when all instances succeeded."""
    with tempfile.TemporaryDirectory(prefix="peloton-demo-") as folder:
        print("Starting a cluster of three virtual hosts in a temporary folder …", flush=True)
        cluster = _start(Path(folder))
        try:
            address = _address(cluster)
            _hello(address)
        except DemoFailed as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        finally:
            _stop(cluster)
    return 0


def _start(folder: Path) -> subprocess.Popen[str]:
    ports = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--no-classic-ports"]
    command = [sys.executable, "-m", "peloton", "minicluster", "--data-dir", str(folder / "data")]
    return subprocess.Popen(
        [*command, *ports, "--stop-tasks-on-exit"], stdout=subprocess.PIPE, text=True
    )


def _address(cluster: subprocess.Popen[str]) -> str:
    """What the cluster prints once it serves."""
    assert cluster.stdout is not None
    for line in cluster.stdout:
        if line.startswith("ready: grpc "):
            return line.split()[-1]
    raise DemoFailed(f"the cluster ended with exit code {cluster.wait(START_MAX_S)}")


def _stop(cluster: subprocess.Popen[str]) -> None:
    print("\nStopping the cluster and all it started …", flush=True)
    cluster.send_signal(signal.SIGTERM)
    try:
        cluster.wait(STOP_MAX_S)
    except subprocess.TimeoutExpired:
        cluster.kill()
        cluster.wait()
        raise


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
    command = [sys.executable, "-m", "peloton", "--api", address, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_MAX_S)
    if done.returncode != 0:
        raise DemoFailed(f"{' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
