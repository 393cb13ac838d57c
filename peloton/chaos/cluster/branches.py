"""Rare branches."""

from __future__ import annotations

from peloton.runtime.simulation.storms import Storm

BRANCHES: dict[str, str] = {}


class Observer:
    """Later."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm

    def reached(self) -> tuple[str, ...]:
        return ()
