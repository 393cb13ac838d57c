"""The benchmark of launches on Mesos, tiny: each way has its lines. No time is judged."""

from __future__ import annotations

import pytest

from bench import mesos_launches
from tests.servers.mesos_home import needed_home


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_either_way_has_its_lines_and_there_is_a_ratio() -> None:
    needed_home()
    words = "--agents 2 --rounds 2 --tasks 6 --by-command 2".split()
    lines = [*mesos_launches.run(mesos_launches.options(words))]
    for way, count in ((mesos_launches.KEEPER, 6), (mesos_launches.COMMAND, 2)):
        assert sum(line.startswith(f"{way:<8} {count:>5} tasks on 2 agents") for line in lines) == 2
    assert lines[-1].startswith("# keeper / command: rate ")
