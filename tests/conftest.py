"""What every test shares: where the repository is, and the switch for slow tests.

A test says all it needs by itself.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

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


pytest_plugins = ["tests.suite_times", "tests.workers"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--nightly", action="store_true", help="run those marked nightly as well")
    parser.addoption(
        "--storm-seconds", type=float, default=15.0, metavar="S",
        help="how long each of the two tests of storms draws fresh seeds, in seconds",
    )  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def storm_seconds(pytestconfig: pytest.Config) -> float:
    """For so long a test draws seeds that nobody has played before."""
    seconds: float = pytestconfig.getoption("--storm-seconds")
    return seconds
