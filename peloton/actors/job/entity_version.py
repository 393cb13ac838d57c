"""The version of a service that clients compare before they change it."""

from __future__ import annotations

from peloton.runtime.vocabulary import Value


class EntityVersion(Value, frozen=True, gc=False, array_like=True):
    """How often config, goal and workflows of a service have changed, each counted from 1."""

    config: int
    goal: int
    workflow: int

    def __str__(self) -> str:
        return f"{self.config}-{self.goal}-{self.workflow}"
