"""Files to fetch, in the spec of a job and in the spec of a run."""

from __future__ import annotations

from peloton.actors.host.messages import Uri
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig, effective
from peloton.actors.job.spec_levels import check_configs
from peloton.actors.task.messages import LEVEL_SERVICES
from tests.actors.test_secret_refs import SPEC

FILES = (Uri("http://x", output_file="x"),)
OWN = TaskConfig(command=Command("true", uris=FILES))


def test_they_go_with_their_command() -> None:
    default = TaskConfig(command=Command("sleep 1", uris=(Uri("http://y"),)))
    assert effective(default, OWN).command == Command("true", uris=FILES)
    assert effective(default, TaskConfig()).command == default.command
    assert effective(default, TaskConfig(command=Command("true"))).command == Command("true")


def test_they_need_a_level_at_which_all_know_of_them() -> None:
    assert check_configs(SPEC, [], level=0) is None
    assert check_configs(SPEC, [Override(0, OWN)], level=LEVEL_SERVICES) is None
    refused = check_configs(SPEC, [Override(0, OWN)], level=LEVEL_SERVICES - 1)
    assert refused is not None and "feature level 7" in refused.text
