"""How often what of a service has changed. Must not know the job."""

from __future__ import annotations

from peloton.runtime.vocabulary import Value


class EntityVersion(Value, frozen=True, gc=False, array_like=True):
    """What clients compare before they change a service: how often what has changed.

    Of its config, its goal and its workflows; each counts from 1.
    """

    config: int
    goal: int
    workflow: int

    def __str__(self) -> str:
        return f"{self.config}-{self.goal}-{self.workflow}"
