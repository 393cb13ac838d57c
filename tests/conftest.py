"""What every test shares: where the repository is, the switch for slow tests, and who goes first.

Must not hold fixtures that set up actors: a test says all it needs by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# With several workers, tests of one group run in one of them, one after the other. Those with real
# servers share the ZooKeeper and the Cassandra of their process; the house rules share what they
# have parsed.
GROUPS = {
    "servers": ("tests/adapters/", "tests/bench/", "tests/contracts/", "tests/cli/test_search.py"),
    "house": ("tests/house/",),
}
# With several workers the long ones begin first, so that none is left alone at the end.
LONG = ("tests/worlds/", "tests/model/", "tests/e2e/", "tests/backends/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        for item in items:
            group = _group(item.nodeid)
            if group:
                item.add_marker(pytest.mark.xdist_group(group))
        items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def _group(nodeid: str) -> str:
    return next((name for name, paths in GROUPS.items() if nodeid.startswith(paths)), "")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
