"""The fleet's benchmark, tiny: real daemons, and every task that it counts. No time is judged."""

from __future__ import annotations

import re

import pytest

from bench import fleet
from bench.parts.daemons import Shape
from tests.servers import cassandra, zookeeper

JOBS, SIZE, SINGLES, CALLS = 2, 10, 6, 6
SHARDS = {"jobmgr": 4, "resmgr": 1, "hostmgr": 4}


def asked(*more: str) -> list[str]:
    """Options of a run of seconds."""
    counts = {
        "--jobs": JOBS, "--size": SIZE, "--singles": SINGLES, "--calls": CALLS, "--warm-up": 2,
        "--hosts": 20, "--pairs": 1, "--duration-s": 1, "--idle-s": 0,
        "--cassandra-port": cassandra.shared().port, "--zookeeper-port": zookeeper.shared().port,
        "--shards": ",".join(f"{name}={count}" for name, count in SHARDS.items()),
        "--name": "bench_smoke",
    }  # fmt: skip
    return [*(str(word) for pair in counts.items() for word in pair), *more]


@pytest.mark.nightly
@pytest.mark.timeout(600)  # six processes begin, on a machine that may be busy
def test_two_daemons_share_the_tasks_and_all_of_them_are_counted() -> None:
    lines = [*fleet.run(fleet.options(asked("--shapes", "sqlite", "cassandrax2")))]
    for shape, daemons in (("sqlite x1", 1), ("cassandra x2", 2)):
        told = [line for line in lines if line.startswith(f"{shape}  ")]
        for what, tasks in ((f"{JOBS} jobs of {SIZE}", JOBS * SIZE), (f"{SINGLES} jobs of 1", 6)):
            (line,) = [line for line in told if f"  {what}: " in line]
            assert sum(map(int, re.findall(r"\((\d+) tasks\)", line))) == tasks
        creates = [int(n) for n in re.findall(r"Create \w+ .*\((\d+) calls\)", "\n".join(told))]
        gets = [int(n) for n in re.findall(r"Get \w+ .*\((\d+) calls\)", "\n".join(told))]
        assert sum(creates) == CALLS and sum(gets) == CALLS * daemons
        (line,) = [line for line in told if "  shards: " in line]
        owned = [int(count) for count in re.findall(r"d\d (\d+)", line)]
        assert len(owned) == daemons and sum(owned) == sum(SHARDS.values())
    assert any(line.startswith("# cassandra x2 / sqlite x1  single, starts/s: ") for line in lines)


def test_ratios_are_of_the_shape_before_and_of_the_same_turn() -> None:
    one, two = Shape("cassandra", 1), Shape("cassandra", 2)
    found = {
        one: [{"cpu": 2.0, "idle": 0.0}, {"cpu": 4.0, "idle": 0.0}],
        two: [{"cpu": 3.0, "idle": 1.0, "Get other": 1.0}, {"cpu": 10.0, "idle": 1.0}],
    }
    (line,) = fleet.compare(found)  # nothing is a multiple of nothing
    assert line == "# cassandra x2 / cassandra x1  cpu: 2.00 (1.50 to 2.50)"
