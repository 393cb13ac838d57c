"""Sandboxes of a real minicluster are removed by a rule, which is told; those still read stay."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peloton.sdk.errors import NotFound
from tests.e2e import cluster as c

RULE = "kept for 1 s (keep_sandboxes_for)"


def test_files_of_old_runs_are_removed_and_the_rule_is_named(tmp_path: Path) -> None:
    """By one rule; each is in `tests/backends/keeper/test_kept.py`."""
    kept = {"process": {"keep_sandboxes_for": "1s"}}
    with c.running(tmp_path, backend=kept) as cluster, cluster.client() as client:
        c.pool(client)
        job = str(client.jobs.create("/tests", c.job(2, "echo here")).jobId.value)
        assert c.ended(client, job)[0] == "SUCCEEDED"

        def removed() -> list[str]:
            found = []
            for instance in range(2):
                try:
                    client.tasks.browse(job, instance)
                except NotFound as error:
                    found.append(str(error))
            return found

        c.wait_for(removed, "a sandbox to be removed")
        text = removed()[0]
        assert RULE in text and f"the files of run {job}-" in text
        [gone] = [*{number for number in range(2) if f"{job}-{number}-1 " in text}]
        with pytest.raises(NotFound) as refused:
            next(client.tasks.logs(job, gone))
        assert RULE in str(refused.value)
        shown = cluster.cli("task", "logs", job, str(gone), check=False)
        assert shown.returncode != 0 and RULE in shown.stderr and "Traceback" not in shown.stderr


SMALL = ("--cpus", "0.05", "--mem", "10m")
THREE_KEPT = {"process": {"keep_sandboxes": 3}}
COUNT_RULE = "of ended runs those of 3 are kept (keep_sandboxes)"


def test_a_map_has_all_outputs_however_few_are_kept(tmp_path: Path) -> None:
    """Beside another one; by its hold. Afterwards the rule counts, and says so."""
    values = [str(number) for number in range(60)]
    results = tmp_path / "results"

    def mapped(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "peloton", "--api", cluster.address, "map"]
        template = "echo out {}; echo err {} >&2; exit $(( {} == 7 ))"
        typed = [*command, *SMALL, *words, template, ":::", *values]
        return subprocess.run(typed, capture_output=True, text=True, timeout=c.WAIT_MAX_S)

    with c.running(tmp_path, backend=THREE_KEPT) as cluster:
        with ThreadPoolExecutor(2) as threads:
            printing = threads.submit(mapped)
            writing = threads.submit(mapped, "--results", str(results))
            printed, written = printing.result(), writing.result()
        assert printed.returncode == written.returncode == 1, printed.stderr + written.stderr
        assert sorted(printed.stdout.splitlines()) == sorted(f"out {value}" for value in values)
        assert {f"err {value}" for value in values} <= {*printed.stderr.splitlines()}
        assert written.stdout == ""
        assert sorted(path.name for path in results.iterdir()) == sorted(values)
        for value in values:
            found = {path.name: path.read_text() for path in (results / value).iterdir()}
            code = f"{int(value == '7')}\n"
            assert found == {"stdout": f"out {value}\n", "stderr": f"err {value}\n", "code": code}

        again = mapped("--results", str(results))
        assert again.returncode == 64 and "has results already, such as" in again.stderr
        assert "Traceback" not in again.stderr


def test_output_that_is_gone_is_counted_and_no_success(tmp_path: Path) -> None:
    with c.running(tmp_path, backend=THREE_KEPT) as cluster, cluster.client() as client:
        words = ("map", *SMALL, "--detach", "echo", ":::", *map(str, range(20)))
        job = cluster.cli(*words).stdout.strip()
        assert c.ended(client, job)[0] == "SUCCEEDED"
        kept = tmp_path / "data" / "keeper" / "runs"
        c.wait_for(lambda: len([*kept.iterdir()]) == 3, "all but three to be removed")
        shown = cluster.cli("job", "logs", job, check=False)
        assert shown.returncode == 74 and len(shown.stdout.splitlines()) == 3
        assert "the output of 17 instances is gone" in shown.stderr and COUNT_RULE in shown.stderr
