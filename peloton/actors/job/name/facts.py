"""The facts of the owner of a name. Numbers and meanings are permanent: journals hold them."""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact, Key


class NameKept(Fact, frozen=True, gc=False, array_like=True):
    """The name is reserved for a job that is about to be created."""

    job: Key
    at: float


class NameClaimed(Fact, frozen=True, gc=False, array_like=True):
    """The name is this job's, which exists."""

    job: Key


class NameForgotten(Fact, frozen=True, gc=False, array_like=True):
    """No job holds the name."""


FACTS: dict[int, type] = {1: NameKept, 2: NameClaimed, 3: NameForgotten}
