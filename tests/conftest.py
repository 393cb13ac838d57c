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
# With several workers, tests of one group run in one of them, one after the other. Those with real
# servers share the ZooKeeper and the Cassandra of their process; the house rules share what they
# have parsed.
GROUPS = {
    "servers": ("tests/adapters/", "tests/bench/", "tests/contracts/", "tests/cli/test_search.py"),
    "house": ("tests/house/",),
}
# Here the tests of a file share a cluster, and may find in it what those before them made.
BY_FILE = ("tests/e2e/", "tests/gateway/")
# With several workers the long ones begin first, so that none is left alone at the end.
LONG = ("tests/worlds/", "tests/model/", "tests/e2e/", "tests/backends/")


pytest_plugins = ["tests.suite_times"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--nightly", action="store_true", help="run those marked nightly as well")
    parser.addoption(
        "--storm-seconds", type=float, default=15.0, metavar="S",
        help="how long a test draws fresh storms in each of two workers",
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
    if nodeid.startswith(BY_FILE):
        return nodeid.partition("::")[0]
    return next((name for name, paths in GROUPS.items() if nodeid.startswith(paths)), "")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def storm_seconds(pytestconfig: pytest.Config) -> float:
    """For so long, in each of two workers, a test draws seeds that nobody has played before."""
    seconds: float = pytestconfig.getoption("--storm-seconds")
    return seconds
