"""A daemon of toy kinds on real threads."""

from __future__ import annotations

import time

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.root import Root, start
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import key
from tests.toy import messages as w
from tests.toy.daemon import panel
from tests.toy.kinds import KINDS, SIZES

WAIT_S_MAX = 60.0
"""For what takes a moment, on a machine that has other things to do."""


def daemon(store: MemoryRows, name: bytes = b"a" * 16) -> Root:
    journal = FencedRows(store, process=name)
    root = start(KINDS, journal, sizes=SIZES, clock=SystemClock())
    root.opened.result(WAIT_S_MAX)
    return root


def until(root: Root, name: str, wanted: int) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        if root.region.ask(panel(name), w.Show()).result(WAIT_S_MAX) == wanted:
            return
        time.sleep(0.01)
    raise AssertionError(f"{name} never had {wanted} lamps on")


def test_from_command_to_goal_and_through_a_restart():
    store = MemoryRows()
    root = daemon(store)
    try:
        root.region.tell([Envelope(key("meter", 0), w.Build(100))])
        assert root.region.ask(panel("a"), w.Install(10)).result(WAIT_S_MAX) == w.Done(1)
        assert root.region.ask(panel("a"), w.Switch(True)).result(WAIT_S_MAX) == w.Done(2)
        until(root, "a", 10)
        assert root.health() == (True, [])
        assert sorted(root.region.views("panel").result(WAIT_S_MAX)) == [(panel("a"), 2)]
        assert root.region.story(panel("a")).result(WAIT_S_MAX)
        assert root.region.quarantine().result(WAIT_S_MAX) == []
    finally:
        root.stop()
    root = daemon(store, b"b" * 16)
    try:
        assert root.region.ask(panel("a"), w.Show()).result(WAIT_S_MAX) == 10
    finally:
        root.stop()
