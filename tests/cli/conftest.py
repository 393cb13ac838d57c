"""A terminal for each test; no variable of the developer's shell leaks in, and no wait is long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.cli.services import workflow_wait
from tests.cli.terminal import Terminal, terminal

VARIABLES = (
    "PELOTON_API JOBMGR_URL RESMGR_URL HOSTMGR_URL CLUSTER_NAME ZK_SERVERS ZK_ROOT "
    "BASIC_AUTH_CONFIG TIMEOUT"
).split()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(workflow_wait, "PAUSE_S", 0.02)


@pytest.fixture
def peloton() -> Iterator[Terminal]:
    with terminal() as one:
        yield one
