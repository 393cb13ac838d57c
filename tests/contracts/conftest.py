"""Gives every contract test its rig."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.runtime.adapters import sqlite_round
from peloton.runtime.core.journal import segments
from tests.contracts import journals
from tests.servers.mesos import Mesos
from tests.servers.mesos_home import needed_home


@pytest.fixture(params=journals.RIGS + journals.SERVED)
def new_rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[journals.JournalRig]:
    """A store that no cluster has used yet."""
    built = journals.build(request.param, tmp_path)
    # Segments and rounds that a short test fills, so that there are some to cut.
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", built.segment_frames)
    monkeypatch.setattr(sqlite_round, "CUT_FRAMES_PER_ROUND", built.segment_frames)
    yield built
    built.close()


@pytest.fixture
def rig(new_rig: journals.JournalRig) -> journals.JournalRig:
    """One with a cluster record."""
    new_rig.open().bootstrap(journals.GROUPS)
    return new_rig


@pytest.fixture(scope="module")
def mesos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesos]:
    """A real master with two agents; each rig is a framework of its own there."""
    needed_home()
    cluster = Mesos.start(tmp_path_factory.mktemp("mesos"), agents=2)
    yield cluster
    cluster.stop()
