"""What every test shares: where the repository is, the switch for slow tests, and who goes first.

Must not hold fixtures that set up actors: a test says all it needs by itself.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A loaded machine is slow, which is no fault of what is tested.
settings.register_profile("peloton", settings(deadline=None))
settings.load_profile("peloton")

ROOT = Path(__file__).resolve().parent.parent
# Clusters of tests are found by tests alone, and the user's own are not found by tests.
STATE = tempfile.mkdtemp(prefix="peloton-tests-")
os.environ["XDG_STATE_HOME"] = STATE
atexit.register(shutil.rmtree, STATE, ignore_errors=True)
# With several workers, tests of one group run in one of them, one after the other. Each process has
# a Cassandra and a ZooKeeper for those that ask; whoever is missing here starts a second one, which
# costs seconds and no more. The house rules share what they have parsed.
GROUPS = {
    "cassandra": (
        "tests/adapters/test_cassandra",
        "tests/adapters/test_daemon_servers.py",
        "tests/adapters/test_fleet_",
        "tests/adapters/test_mesos_fleet.py",
        "tests/adapters/test_mesos_takeover.py",
        "tests/bench/",
        "tests/contracts/test_journal",
        "tests/contracts/test_round",
        "tests/contracts/test_secret_store.py",
    ),
    "zookeeper": (
        "tests/adapters/test_leading_master.py",
        "tests/adapters/test_mesos_servers.py",
        "tests/adapters/test_mesos_standby.py",
        "tests/adapters/test_mesos_tls.py",
        "tests/adapters/test_zookeeper",
        "tests/cli/test_features.py",
        "tests/cli/test_preflight.py",
        "tests/cli/test_search.py",
        "tests/contracts/test_membership.py",
    ),
    "house": ("tests/house/",),
}
# Here the tests of a file share what is costly to begin: a cluster, keys, a connection.
BY_FILE = ("tests/adapters/", "tests/contracts/", "tests/e2e/", "tests/gateway/")
# With several workers the long ones begin first, so that none is left alone at the end.
LONG = ("tests/worlds/", "tests/model/", "tests/e2e/", "tests/backends/")


pytest_plugins = ["tests.suite_times"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--nightly", action="store_true", help="run those marked nightly as well")
    parser.addoption(
        "--storm-seconds", type=float, default=15.0, metavar="S",
        help="how long each of the two tests of storms draws fresh seeds, in seconds",
    )  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    out = {mark for mark in ("slow", "nightly") if not config.getoption(f"--{mark}")}
    left_out = [item for item in items if not out.isdisjoint(item.keywords)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if out.isdisjoint(item.keywords)]


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    out = [f"--{mark}" for mark in ("slow", "nightly") if not config.getoption(f"--{mark}")]
    return f"marked tests are left out without {' '.join(out)}" if out else ""


def pytest_collection_finish() -> None:
    # Thousands of collected tests and all modules live to the end: full collections skip them.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a group go to one worker; the others to whoever is free."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid) or nodeid

    return Grouped(config, log)


def _group(nodeid: str) -> str:
    alone = nodeid.partition("::")[0] if nodeid.startswith(BY_FILE) else ""
    return next((name for name, paths in GROUPS.items() if nodeid.startswith(paths)), alone)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def storm_seconds(pytestconfig: pytest.Config) -> float:
    """For so long a test draws seeds that nobody has played before."""
    seconds: float = pytestconfig.getoption("--storm-seconds")
    return seconds
