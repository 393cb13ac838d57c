"""The commands of docs/services.md do what the page says, one after the other on one cluster."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from peloton.backends.simulated import RunScript, SimulatedBackend
from tests.cli.terminal import Printed, typed
from tests.gateway.fleet_fixture import HOSTS, running
from tests.house.readme import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")
CODES = {"diff": 83}
"""Exit codes of commands that are not there to succeed."""


def test_from_a_create_to_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = [shlex.split(line, comments=True) for line in commands(PAGE)]
    assert len(lines) == 10
    backend = SimulatedBackend(HOSTS, fates=RunScript(duration_s=3600.0))
    with running(tmp_path, backend=backend) as deployment:
        deployment.make_pool("default")
        printed: dict[str, Printed] = {}
        for program, *words in lines:
            assert program == "peloton"
            found = typed("--api", deployment.api, "-t", "60s", *words)
            assert found.code == CODES.get(words[0], 0), (words, found)
            printed[" ".join(words[:3])] = found
    assert printed["job stateless list-pods"].out.count("POD_STATE_RUNNING") == 3
    changed = "default_spec.containers[0].environment[GREETING].value: hello -> good evening"
    assert changed in printed[f"diff web {lines[2][-1]}"].out
    followed = printed["job stateless workflow"].out.splitlines()
    assert followed[-1] == "UPDATE to version 2 SUCCEEDED: 3 of 3 pods done"
    history = printed["job history web"].out
    assert history.count("update|") == 2 and "restart|" in history
