"""Messages the owner of a name receives from the gateway and from jobs, and its answers to jobs.

The key of the owner is made of the pool and the name, so that there is one for each such pair.
Every message names its job: otherwise a repeat could not be told from another job's message.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.runtime.vocabulary import Delivery, Key, Message, Value, key

NAME_TAKEN = "NAME_TAKEN"
NAME_LENGTH_MAX = 200
"""Longest name, in characters, that can be taken: it is part of a key."""


class ReserveName(Message, frozen=True, gc=False, array_like=True):
    """Gateway to the owner: keep the name for a job that is about to be created; refused if
    taken."""

    job: Key


class CancelReservation(Message, frozen=True, gc=False, array_like=True):
    """Gateway to the owner: the job was not created. A name that its job has claimed stays."""

    job: Key


class ClaimName(Message, frozen=True, gc=False, array_like=True):
    """Job to the owner: the name is to be the job's until it gives it up."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    job: Key


class FreeName(Message, frozen=True, gc=False, array_like=True):
    """Job to the owner: the job has ended; another may have the name."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    job: Key


class NameGranted(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: the name is the job's."""


class NameRefused(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: another job has the name."""

    job: Key


class NameFreed(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: the name is no longer the job's."""


class NameReserved(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ReserveName` and `CancelReservation`."""


MESSAGES: dict[int, type] = {1: ReserveName, 2: CancelReservation, 3: ClaimName, 4: FreeName}
ANSWERS: dict[int, type] = {1: NameReserved}


def name_key(pool: Key, name: str) -> Key:
    """Return the key of the owner of a name in a pool."""
    return key("name", pool.partition("/")[2], name)
