"""Which earlier specs of a job are kept, as facts leave it, and what their owners are sent.

A spec is stored when the next one takes its place, or as it begins if single instances have configs
of their own: only then does the job know these. A new run of the same spec has another config
version, but is no other spec.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from peloton.actors.job.messages import KeptSpec
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.version.messages import (
    OWN_BYTES_KEPT_MAX,
    SPECS_KEPT_MAX,
    DropSpec,
    StoreSpec,
    version_key,
)
from peloton.runtime.vocabulary import Key, Send, Value

Overrides = Iterable[tuple[int, tuple[Override, ...]]]


class Unstored(Value, frozen=True, gc=False, array_like=True):
    """A spec that its owner has not confirmed yet; it does so in the same frame, if it can."""

    number: int
    spec: JobSpec
    overrides: tuple[Override, ...] = ()


class SpecVersions(Value, frozen=True, gc=False, array_like=True):
    """The kept specs of a job.

    `since` is the config version with which the present spec began, 0 if that is not known;
    `stored` the number under which that is stored, 0 while it is not. `past` are the specs before
    it, the newest last. `leaving` are stored ones that are not wanted any more.
    """

    since: int = 0
    stored: int = 0
    past: tuple[KeptSpec, ...] = ()
    keeping: tuple[Unstored, ...] = ()
    leaving: tuple[int, ...] = ()

    @property
    def owes(self) -> bool:
        """Return whether an owner has to do something yet."""
        return bool(self.keeping or self.leaving)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all specs that are stored and wanted, ascending."""
        found = {self.stored, *(each.stored for each in self.past)}
        return tuple(sorted(found - {0}))


def began(versions: SpecVersions, spec: JobSpec, *, overrides: Overrides = ()) -> SpecVersions:
    """Record that this is the present spec from now on.

    The spec of a service is stored with its own configs: those of batch jobs never change, so that
    their instances have them.
    """
    versions = replace(versions, since=spec.config_version, stored=0)
    own = tuple(override for _, some in overrides for override in some)
    if not (own and spec.is_service):
        return versions
    if sum(len(override.config.raw) for override in own) > OWN_BYTES_KEPT_MAX:
        return versions
    number = spec.config_version
    return replace(
        versions, stored=number, keeping=(*versions.keeping, Unstored(number, spec, own))
    )


def replaced(versions: SpecVersions, known: JobSpec) -> SpecVersions:
    """Record that another spec takes the place of the present one, which is a past one from now
    on."""
    since, stored = versions.since or known.config_version, versions.stored
    keeping: tuple[Unstored, ...] = ()
    if not stored and not (known.is_service and known.own_configs):
        stored, keeping = since, (Unstored(since, known),)
    past = (*versions.past, KeptSpec(since, known.config_version, stored))
    return _bounded(replace(versions, past=past, stored=0, keeping=(*versions.keeping, *keeping)))


def gone_back(versions: SpecVersions, version: int, *, to: int) -> SpecVersions:
    """Record that the present spec is that of an earlier version once more, as this version."""
    same = next((each.stored for each in versions.past if each.first <= to <= each.last), 0)
    return replace(versions, since=version, stored=same)


def same_spec(versions: SpecVersions, known: JobSpec) -> SpecVersions:
    """Record that the config version rises, and the spec stays."""
    return versions if versions.since else replace(versions, since=known.config_version)


def deleted(versions: SpecVersions) -> SpecVersions:
    """Record that the job is deleted, so that no spec of it is to stay."""
    return SpecVersions(leaving=(*versions.leaving, *versions.numbers))


def stored(versions: SpecVersions, number: int) -> SpecVersions:
    """Record that the owner has the spec of this number."""
    return replace(versions, keeping=tuple(one for one in versions.keeping if one.number != number))


def dropped(versions: SpecVersions, number: int) -> SpecVersions:
    """Record that the owner has no longer the spec of this number."""
    return replace(versions, leaving=tuple(one for one in versions.leaving if one != number))


def owed_to_specs(job: Key, versions: SpecVersions) -> tuple[Send, ...]:
    """Return what owners of specs are sent until they answer.

    They are told to delete one after the other: each comes back into memory for it.
    """
    kept = (
        Send(version_key(job, one.number), StoreSpec(one.number, one.spec, one.overrides))
        for one in versions.keeping
    )
    gone = (Send(version_key(job, number), DropSpec(number)) for number in versions.leaving[:1])
    return (*kept, *gone)


def newly_owed(job: Key, *, before: SpecVersions, after: SpecVersions) -> tuple[Send, ...]:
    """Return what owners are sent after a change and were not sent before."""
    if after is before or not after.owes:
        return ()
    known = owed_to_specs(job, before)
    return tuple(send for send in owed_to_specs(job, after) if send not in known)


def _bounded(versions: SpecVersions) -> SpecVersions:
    past = versions.past[-SPECS_KEPT_MAX:]
    if len(past) == len(versions.past):
        return versions
    after = replace(versions, past=past)
    gone = tuple(number for number in versions.numbers if number not in after.numbers)
    return replace(
        after,
        keeping=tuple(one for one in after.keeping if one.number not in gone),
        leaving=(*after.leaving, *gone),
    )
