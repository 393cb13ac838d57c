"""Scenarios that once found something, made small: each is played in every suite.

A file here failed when it was written; what it found is told by its name and by the commit that
mended it. `script/replay FILE` tells its story.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.chaos.cluster.storm import ClusterScenario, play
from peloton.runtime.simulation.scenario import load_scenario

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_what_was_found_once_stays_mended(path: Path) -> None:
    play(load_scenario(ClusterScenario, path))
