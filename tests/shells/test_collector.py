"""The garbage collector of a process that a daemon uses: given back as it was found."""

from __future__ import annotations

import gc
import subprocess
import sys

from peloton.runtime.shells.collector import FROZEN_AT_FIRST, YOUNG_OBJECTS, Collector
from tests.conftest import ROOT

ALONE = """
import gc
from peloton.runtime.shells.collector import Collector
before, collector = gc.get_freeze_count(), Collector()
for _ in range(2):
    collector.own()
    assert gc.get_freeze_count() > before + 1000
collector.give_back()
assert gc.get_freeze_count() <= before
"""


def test_what_others_have_frozen_stays_frozen() -> None:
    """As this process of tests has: to walk all of it again takes seconds at each start."""
    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    assert frozen > FROZEN_AT_FIRST
    collector = Collector()
    for _ in range(2):
        collector.own()
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
        assert gc.get_freeze_count() <= frozen, "nothing was added"
    collector.give_back()
    assert gc.get_freeze_count() > FROZEN_AT_FIRST and gc.get_threshold() == thresholds


def test_alone_in_its_process_a_daemon_freezes_and_thaws() -> None:
    subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, check=True)
