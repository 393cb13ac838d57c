"""Messages the owner of an earlier spec receives from its job, and its query.

Its key is made of the job and of the config version with which that spec began. It is in the shard
of its job, so that both commit together. The spec never changes.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.runtime.vocabulary import Delivery, Key, Message, Query, Value, key

SPECS_KEPT_MAX = 20
"""Specs before the present one that a job keeps, the last ones."""
OWN_BYTES_KEPT_MAX = 2 * 1024 * 1024
"""Own configs of instances that are kept with a spec; one that has more of them is not kept."""


class StoreSpec(Message, frozen=True, gc=False, array_like=True):
    """Job to the owner: keep this spec, with the configs of single instances."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    number: int
    spec: JobSpec
    overrides: tuple[Override, ...] = ()


class DropSpec(Message, frozen=True, gc=False, array_like=True):
    """Job to the owner: delete the spec of this number."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    number: int


class GetSpec(Query, frozen=True, gc=False, array_like=True):
    """Asks for the spec, answered `SpecView`."""


class SpecView(Value, frozen=True, gc=False, array_like=True):
    """An earlier spec, with the own configs of the instances of a service."""

    spec: JobSpec
    overrides: tuple[Override, ...] = ()


MESSAGES: dict[int, type] = {1: StoreSpec, 2: DropSpec}
QUERIES: dict[int, type] = {501: GetSpec}
ANSWERS: dict[int, type] = {501: SpecView}


def version_key(job: Key, number: int) -> Key:
    """Return the key of the owner of the spec of a job that began with this config version."""
    return key("version", job.partition("/")[2], number)
