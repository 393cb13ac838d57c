"""Messages the owner of a name receives from the gateway and from jobs, and its answers to jobs.

The key of the owner is made of the pool and the name, so that there is one for each such pair.
None may be without the job that is meant: a repeat could not be distinguished from another's.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.runtime.vocabulary import Delivery, Key, Message, Value, key

NAME_TAKEN = "NAME_TAKEN"
NAME_LENGTH_MAX = 200
"""Longest name, in characters, that can be held: it is part of a key."""


class ReserveName(Message, frozen=True, gc=False, array_like=True):
    """Gateway: keep the name for a job that is about to be created; refused if it is taken."""

    job: Key


class CancelReservation(Message, frozen=True, gc=False, array_like=True):
    """Gateway: the job was not created. A name that its job has claimed stays."""

    job: Key


class ClaimName(Message, frozen=True, gc=False, array_like=True):
    """Job: the name is to be its own until it gives it up."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    job: Key


class FreeName(Message, frozen=True, gc=False, array_like=True):
    """Job: it has ended; the name may be another's."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    job: Key


class NameGranted(Message, frozen=True, gc=False, array_like=True):
    """To the job: the name is its own."""


class NameRefused(Message, frozen=True, gc=False, array_like=True):
    """To the job: the name is another's."""

    holder: Key


class NameFreed(Message, frozen=True, gc=False, array_like=True):
    """To the job: the name is no longer its own."""


class NameReserved(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ReserveName` and `CancelReservation`."""


MESSAGES: dict[int, type] = {1: ReserveName, 2: CancelReservation, 3: ClaimName, 4: FreeName}
ANSWERS: dict[int, type] = {1: NameReserved}


def name_key(pool: Key, name: str) -> Key:
    """The owner of a name in a pool."""
    return key("name", pool.partition("/")[2], name)
