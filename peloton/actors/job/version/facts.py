"""What the owner of an earlier spec journals. Numbers are permanent, because journals hold them.

A fact must not hold more than its fold needs, nor ever change its meaning.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobSpec, Override
from peloton.runtime.vocabulary import Fact


class SpecKept(Fact, frozen=True, gc=False, array_like=True):
    """The spec is kept, with the configs that single instances have by it."""

    spec: JobSpec
    overrides: tuple[Override, ...] = ()


class SpecForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The spec is not kept any more."""


FACTS: dict[int, type] = {1: SpecKept, 2: SpecForgotten}
