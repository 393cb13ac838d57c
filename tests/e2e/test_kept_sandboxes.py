"""Sandboxes of a real minicluster leave by age and by bytes, and whoever asks is told the rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.sdk.errors import NotFound
from tests.e2e import cluster as c

RULES = {
    "--keep-sandboxes-for": ("1s", "kept for 1 s (keep_sandboxes_for)"),
    "--keep-sandboxes-mb": ("3", "may take 3 MB, the oldest go (keep_sandboxes_mb)"),
}


@pytest.mark.parametrize("option", sorted(RULES))
def test_files_of_old_runs_are_removed_and_the_rule_is_named(tmp_path: Path, option: str) -> None:
    value, said = RULES[option]
    write = c.job(2, "echo here; head -c 2000000 /dev/zero > large")
    with c.running(tmp_path, option, value) as cluster, cluster.client() as client:
        c.pool(client)
        job = str(client.jobs.create("/tests", write).jobId.value)
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
        assert said in text and f"the files of run {job}-" in text
        [gone] = [*{number for number in range(2) if f"{job}-{number}-1 " in text}]
        with pytest.raises(NotFound) as refused:
            client.tasks.logs(job, gone)
        assert said in str(refused.value)
        shown = cluster.cli("task", "logs", job, str(gone), check=False)
        assert shown.returncode != 0 and said in shown.stderr and "Traceback" not in shown.stderr
