"""`script/services`: one ZooKeeper and one Cassandra for a developer, which outlive the command.

Turns start, stop and status into processes and what is said of them. They are found again by a file
with their pid. It must not end a process that is not one of these: a pid may have been given to
another meanwhile, so its command line is looked at first.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import platformdirs

from tests.servers.cache import NotInstalled
from tests.servers.cassandra import Cassandra
from tests.servers.process import STOP_TIMEOUT_S, Server, ServerFailed
from tests.servers.zookeeper import ZooKeeper

FAILED, NOT_RUNNING = 1, 3
PORTS = "ports.json"


class Place(NamedTuple):
    """Where the pair lives: its data, and its ports."""

    folder: Path
    zookeeper_port: int = 2181
    cassandra_port: int = 9042
    storage_port: int = 7000


def servers(place: Place) -> list[Server]:
    """Both of them, running or not."""
    ports = {"port": place.cassandra_port, "storage_port": place.storage_port}
    return [
        ZooKeeper(place.folder / "zookeeper", port=place.zookeeper_port),
        Cassandra(place.folder / "cassandra", **ports),
    ]


def remembered(folder: Path) -> Place:
    """The folder with the ports that were last given there."""
    try:
        return Place(folder, **json.loads((folder / PORTS).read_text()))
    except FileNotFoundError:
        return Place(folder)


def remember(place: Place) -> None:
    """So that `status` and another `start` need the folder only."""
    ports = place._asdict()
    folder = ports.pop("folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PORTS).write_text(json.dumps(ports))


def running_pid(server: Server) -> int | None:
    """The pid of a server that was started before and still runs."""
    try:
        pid = int(_pid_file(server).read_text())
        # Not by `ps`, which a small system lacks; a process that has ended has no such file.
        words = Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ")
    except (OSError, ValueError):
        return None
    return pid if str(server.folder).encode() in words else None


def start(place: Place) -> int:
    """Start what does not run, and wait until both answer."""
    new = [server for server in servers(place) if running_pid(server) is None]
    if new:
        remember(place)
    for server in new:
        if server.answers():
            # Ours would find the port taken; and whose data are those?
            raise ServerFailed(f"{server.address} answers already, and is no {server.name} of ours")
    for server in new:
        server.launch(outlive=True)
        assert server.process is not None
        _pid_file(server).write_text(str(server.process.pid))
    for server in new:
        server.wait_until_ready()
    return status(place)


def stop(place: Place) -> int:
    """Stop what runs, and wait for its end."""
    for server in servers(place):
        pid = running_pid(server)
        if pid is not None:
            _end(server, pid)
            print(f"{server.name}  stopped")
        _pid_file(server).unlink(missing_ok=True)
    return 0


def _end(server: Server, pid: int) -> None:
    ended = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(ended, signal.SIGTERM)
        if not select.select([ended], [], [], STOP_TIMEOUT_S)[0]:
            signal.pidfd_send_signal(ended, signal.SIGKILL)
            raise ServerFailed(f"{server.name} had to be killed, see {server.log}")
    finally:
        os.close(ended)


def status(place: Place) -> int:
    """A line for each. The exit code says whether both serve."""
    code = 0
    for server in servers(place):
        pid = running_pid(server)
        if pid is None:
            words = "does not run"
        elif not server.answers():
            words = f"pid {pid}, does not answer, see {server.log}"
        else:
            words = f"pid {pid}, serves on {server.address}"
        code = code if words.endswith(server.address) else NOT_RUNNING
        print(f"{server.name:<10} {words}")
    return code


def _pid_file(server: Server) -> Path:
    return server.folder / "pid"


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="script/services", description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["start", "stop", "status"])
    parser.add_argument("--fresh", action="store_true", help="start: forget what they held")
    parser.add_argument(
        "--folder", type=Path, default=Path(platformdirs.user_state_dir("peloton")) / "services",
        help="where their data and logs are  [default: %(default)s]",
    )  # fmt: skip
    for name, port in Place._field_defaults.items():
        flag = "--" + name.replace("_", "-")
        help_ = f"[default: that of the last start in the folder, or {port}]"
        parser.add_argument(flag, type=int, help=help_)
    options = vars(parser.parse_args(words))
    command, fresh = options.pop("command"), options.pop("fresh")
    place = remembered(options.pop("folder").absolute())
    place = place._replace(**{name: port for name, port in options.items() if port is not None})
    try:
        if command == "start" and fresh:
            stop(place)
            shutil.rmtree(place.folder, ignore_errors=True)
        return {"start": start, "stop": stop, "status": status}[command](place)
    except (ServerFailed, NotInstalled) as error:
        print(f"script/services: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
