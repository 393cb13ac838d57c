"""The state of the owner of an earlier spec: that spec. One that was deleted has no state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.version import facts as f
from peloton.runtime.vocabulary import Value


class Version(Value, frozen=True, gc=False, array_like=True):
    """An earlier spec of a job; it never changes."""

    spec: JobSpec
    overrides: tuple[Override, ...] = ()


EVOLVE: Mapping[type, Callable[[Any, Any], Version | None]] = {
    f.SpecKept: lambda version, fact: Version(fact.spec, fact.overrides),
    f.SpecForgotten: lambda version, fact: None,
}
