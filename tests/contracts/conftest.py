"""Gives every contract test its rig; it must not set up more than the cluster record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts import journals


@pytest.fixture(params=journals.RIGS + journals.SERVED)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[journals.JournalRig]:
    built = journals.build(request.param, tmp_path)
    built.open().bootstrap(journals.GROUPS)
    yield built
    built.close()
