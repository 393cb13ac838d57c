"""What the owners of earlier specs tell a job, and what clients see of these specs."""

from __future__ import annotations

from peloton.runtime.vocabulary import Message, Value


class KeptSpec(Value, frozen=True, gc=False, array_like=True):
    """An earlier spec of a job, by the config versions that had it: `first` to `last`.

    `stored` is the number under which it is found, 0 if it was too large to be kept.
    """

    first: int
    last: int
    stored: int


class SpecStored(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: the spec of this number is kept."""

    number: int


class SpecDropped(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: the spec of this number is not kept any more."""

    number: int
