"""`script/services` as a developer types it, on ports of its own.

The default ports are never used, as a developer's own servers may be there.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.servers import __main__ as services
from tests.servers.process import free_ports

FLAGS = ("--zookeeper-port", "--cassandra-port", "--storage-port")


@pytest.mark.nightly
def test_the_pair_starts_is_found_again_and_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--folder", str(tmp_path)]
    for flag, port in zip(FLAGS, free_ports(3), strict=True):
        where += [flag, str(port)]
    assert services.main(["status", *where]) == services.NOT_RUNNING
    try:
        assert services.main(["start", *where]) == 0
        where = where[:2]  # the folder knows its ports
        assert services.main(["start", *where]) == 0
        assert services.main(["status", *where]) == 0
        said = capsys.readouterr().out
        assert said.count("serves on 127.0.0.1:") == 6
        pid = int((tmp_path / "zookeeper" / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert services.main(["status", *where]) == services.NOT_RUNNING
    finally:
        assert services.main(["stop", *where]) == 0
    assert services.main(["status", *where]) == services.NOT_RUNNING


def test_a_pid_that_is_another_process_is_not_ours(tmp_path: Path) -> None:
    zookeeper, _ = services.servers(services.Place(tmp_path, *free_ports(3)))
    zookeeper.folder.mkdir()
    (zookeeper.folder / "pid").write_text(str(os.getpid()))
    assert services.running_pid(zookeeper) is None
