"""What docs/fleet.md tells people to type for their first fleet, typed for real.

The servers are those of the tests, at other ports than a developer's; `script/services`, which the
page begins and ends with, has tests of its own (test_services.py).
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.terminal import Printed, typed
from tests.conftest import ROOT
from tests.house import readme
from tests.servers import cassandra
from tests.servers.zookeeper import ZooKeeper

PELOTON = ".venv/bin/peloton "
EXAMPLE = "examples/daemon.yaml"
KEYSPACE = "words"
STOP_S_MAX = 60.0


def words() -> Iterator[list[str]]:
    """The page's commands up to the end of its first fleet."""
    for line in readme.commands((ROOT / "docs" / "fleet.md").read_text()):
        if line.startswith("script/services stop"):
            return
        if line.startswith(PELOTON):
            yield shlex.split(line.removeprefix(PELOTON), comments=True)


def here(file: Path, zookeeper: ZooKeeper) -> None:
    """The example with other ports, another folder and another keyspace."""
    found = yaml.safe_load((ROOT / EXAMPLE).read_text())
    found["listen"] = dict.fromkeys(found["listen"], "127.0.0.1:0")
    found["zookeeper"]["hosts"] = [zookeeper.address]
    found["journal"]["cassandra"] |= {"port": cassandra.shared().port, "keyspace": KEYSPACE}
    file.write_text(yaml.safe_dump(found))


@contextlib.contextmanager
def foreground(line: list[str]) -> Iterator[str]:
    """A daemon from its `ready` until SIGTERM, and where it serves."""
    command = [sys.executable, "-m", "peloton", *line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            assert ready[:2] == ["ready:", "grpc"]
            yield ready[-1]
        finally:
            process.terminate()
            assert process.wait(STOP_S_MAX) == 0


@pytest.mark.timeout(600)  # two servers and a daemon begin, and commands take a second each
def test_the_first_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = tmp_path / "daemon.yaml"
    store = ["--cassandra", f"127.0.0.1:{cassandra.shared().port}", "--keyspace", KEYSPACE]
    with contextlib.ExitStack() as undo:
        zookeeper = ZooKeeper.start(tmp_path / "zookeeper")
        undo.callback(zookeeper.stop)
        here(file, zookeeper)
        said: dict[str, Printed] = {}
        for line in words():
            if EXAMPLE in line:
                line[line.index(EXAMPLE)] = str(file)
            if line[0] in ("schema", "doctor"):
                line += store
            if line[0] == "-z":
                line[1] = zookeeper.address
            if line[0] == "daemon" and "--check" not in line:
                monkeypatch.setenv("PELOTON_API", undo.enter_context(foreground(line)))
                continue
            # Nothing is tried twice: `ready` has to be true.
            printed = said[" ".join(line[:2])] = typed(*line)
            assert printed.code == 0, (line, printed)
        assert len(said) == 7, "all of the page was typed"
        assert "peloton-mesos-agent2" in said["host list"].out
