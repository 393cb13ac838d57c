"""Files to fetch, in the spec of a job and in the spec of a run."""

from __future__ import annotations

from peloton.actors.host.run_spec import Uri
from peloton.actors.job.slice.task_config import Command, TaskConfig, effective

FILES = (Uri("http://x", output_file="x"),)
OWN = TaskConfig(command=Command("true", uris=FILES))


def test_they_go_with_their_command() -> None:
    default = TaskConfig(command=Command("sleep 1", uris=(Uri("http://y"),)))
    assert effective(default, OWN).command == Command("true", uris=FILES)
    assert effective(default, TaskConfig()).command == default.command
    assert effective(default, TaskConfig(command=Command("true"))).command == Command("true")
