"""A strategy that another distribution brought, in a cluster of processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peloton.placement.strategies import STRATEGIES
from peloton.sdk.errors import PelotonError
from tests.e2e.cluster import ROOT, ended, job, pool, running

CODE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "placement.md").read_text(), re.DOTALL)


def installed(folder: Path, code: str) -> str:
    """A folder with the strategy of the page, as a distribution; for PYTHONPATH."""
    info = folder / "acme_placing-1.5.dist-info"
    info.mkdir(parents=True)
    (folder / "old_hardware.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-placing\nVersion: 1.5\n")
    entry = "[peloton.placement.strategies]\nsmallest = old_hardware:SMALLEST\n"
    (info / "entry_points.txt").write_text(entry)
    return str(folder)


def labelled(name: str) -> list[dict[str, str]]:
    return [{"key": "peloton.strategy", "value": name}]


def test_it_places_and_unknown_names_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", installed(tmp_path / "site", CODE[0]))
    with running(tmp_path) as cluster, cluster.client() as client:
        path = pool(client)
        created = client.jobs.create(path, job(3, "true", labels=labelled("smallest")))
        assert ended(client, created.jobId.value) == ("SUCCEEDED", {"SUCCEEDED": 3})
        known = ", ".join(sorted({*STRATEGIES, "smallest"}))
        with pytest.raises(PelotonError, match=f"'best': there are {known}"):
            client.jobs.create(path, job(1, "true", labels=labelled("best")))


def test_a_broken_one_stops_the_start_and_names_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", installed(tmp_path / "site", "SMALLEST = 1\n"))
    says = r"of acme-placing 1\.5 .* is a int, not a Strategy"
    with pytest.raises(AssertionError, match=says), running(tmp_path):
        pass
