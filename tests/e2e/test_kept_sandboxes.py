"""Sandboxes of a real minicluster leave by a rule, and whoever asks is told the rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.sdk.errors import NotFound
from tests.e2e import cluster as c

RULE = "kept for 1 s (keep_sandboxes_for)"


def test_files_of_old_runs_are_removed_and_the_rule_is_named(tmp_path: Path) -> None:
    """By one rule; each is in `tests/backends/keeper/test_kept.py`."""
    with c.running(tmp_path, "--keep-sandboxes-for", "1s") as cluster, cluster.client() as client:
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
            client.tasks.logs(job, gone)
        assert RULE in str(refused.value)
        shown = cluster.cli("task", "logs", job, str(gone), check=False)
        assert shown.returncode != 0 and RULE in shown.stderr and "Traceback" not in shown.stderr
