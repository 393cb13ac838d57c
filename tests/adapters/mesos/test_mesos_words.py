"""What docs/mesos.md tells people to type for their first job on a Mesos cluster, typed for real.

The first block, an install, is done by `script/setup --test`. The test gives agents room for the
pool of the examples, and other ports than a person's; what is typed else is the page's.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_fleet_words import PELOTON, foreground
from tests.cli.terminal import typed
from tests.conftest import ROOT
from tests.house import readme
from tests.servers import mesos_home
from tests.servers.mesos import ROOMY, Mesos

EXAMPLE = "examples/mesos.yaml"
LINES = [*readme.commands((ROOT / "docs" / "mesos.md").read_text())]


def words() -> list[list[str]]:
    """The page's own commands, but those that read another's output."""
    lines = (line for line in LINES if line.startswith(PELOTON))
    return [shlex.split(line.removeprefix(PELOTON), comments=True) for line in lines]


@pytest.mark.timeout(180)
def test_the_first_job_on_mesos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mesos_home.needed_home()
    monkeypatch.chdir(ROOT)
    mesos = Mesos(tmp_path / "mesos", agents=2, resources=ROOMY)
    settings = yaml.safe_load((ROOT / EXAMPLE).read_text())
    settings["listen"] = dict.fromkeys(settings["listen"], "127.0.0.1:0")
    settings["backend"]["mesos"]["master"] = mesos.address
    file = tmp_path / "mesos.yaml"
    file.write_text(yaml.safe_dump(settings))
    daemon, *lines, run, doctor = words()
    assert daemon == ["daemon", "--config", EXAMPLE] and len(lines) == 3
    (piped,) = (line for line in LINES if "| .venv/bin/peloton" in line)
    try:
        mesos.launch()
        with foreground(["daemon", "--config", str(file)]) as address:
            monkeypatch.setenv("PELOTON_API", address)
            until(lambda: "mesos.h2" in typed("host", "list").out)
            for line in lines:
                printed = typed(*line)
                assert printed.code == 0, (line, printed)
            waited = typed("job", "wait", printed.out.split()[1])
            assert waited.code == 0 and "10 SUCCEEDED" in waited.out
            subprocess.run(["bash", "-c", piped], check=True, timeout=60)
            printed = typed(*run)
            assert (printed.code, printed.out.strip()) == (0, socket.gethostname()), printed
            assert doctor == ["doctor", "--mesos", EXAMPLE]
            printed = typed(*doctor[:-1], str(file))
            assert printed.code == 0 and "ok " in printed.out, printed
    finally:
        mesos.stop()
