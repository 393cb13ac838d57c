"""One cluster for all tests of a module. A test must not count on what others left in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway import fleet_fixture as t
from tests.gateway.access_fixture import Guarded, guarded


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployment")


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[t.Deployment]:
    with t.running(folder) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With permissions and an audit log."""
    with guarded(tmp_path_factory.mktemp("guarded")) as found:
        yield found
