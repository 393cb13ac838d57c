"""Gives every contract test its rig; it must not set up more than the cluster record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.runtime.core import segments
from tests.contracts import journals


@pytest.fixture(params=journals.RIGS + journals.SERVED)
def rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[journals.JournalRig]:
    # Segments that a short test fills, so that there are some to cut.
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", 256)
    built = journals.build(request.param, tmp_path)
    built.open().bootstrap(journals.GROUPS)
    yield built
    built.close()
