"""Gives every contract test its house; it must not set up more than the cluster record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts import houses


@pytest.fixture(params=houses.HOUSES + houses.SERVED)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[houses.House]:
    built = houses.build(request.param, tmp_path)
    built.open().bootstrap(houses.GROUPS)
    yield built
    built.close()
