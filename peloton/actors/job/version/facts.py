"""The facts of the owner of an earlier spec. Numbers and meanings are permanent."""

from __future__ import annotations

from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.runtime.vocabulary import Fact


class SpecKept(Fact, frozen=True, gc=False, array_like=True):
    """The spec is kept, with the configs of single instances."""

    spec: JobSpec
    overrides: tuple[Override, ...] = ()


class SpecForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The spec is not kept any more."""


FACTS: dict[int, type] = {1: SpecKept, 2: SpecForgotten}
