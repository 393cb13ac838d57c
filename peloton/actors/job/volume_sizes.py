"""The sizes of the volumes of a job: each keeps the size that it was made with.

The size in the default config is stored there; for instances with a config of their own the job
remembers the sizes that differ from it, also for instances that were removed, as their volumes
still exist. A host keeps the size in any case, so a new one would have no effect, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import immutables

from peloton.actors.job.slice.task_config import Override, effective
from peloton.actors.job.spec import DEFAULT, INVALID, JobSpec
from peloton.runtime.vocabulary import Refused

VolumeSizes = immutables.Map[int, int]
"""In MB, by instance."""


def configs_of(pieces: Iterable[tuple[int, tuple[Override, ...]]]) -> Iterator[Override]:
    """Return the overrides of all slices."""
    return (override for _, overrides in pieces for override in overrides)


def sizes_with(known: VolumeSizes, spec: JobSpec, *, own: Iterable[Override]) -> VolumeSizes:
    """Return the sizes that differ from the default's, with these configs of instances."""
    if not spec.is_service:
        return known
    default = spec.default.volume
    for override in own:
        volume = effective(spec.default, override.config).volume
        if volume is not None and (default is None or volume.size_mb != default.size_mb):
            known = known.set(override.instance, volume.size_mb)
    return known


def sizes_of_update(known: VolumeSizes, spec: JobSpec, *, own: Iterable[Override]) -> VolumeSizes:
    """Return the sizes after an update, whose configs are all there are.

    An update that gives an instance no volume lets a later one say any size, as with the default's:
    what is on a host keeps its own.
    """
    given = [*own]
    configs = {override.instance: override.config for override in given}
    for instance in sorted(known):
        config = effective(spec.default, configs.get(instance))
        if instance < spec.instances and config.volume is None:
            known = known.delete(instance)
    return sizes_with(known, spec, own=given)


def resized(
    known: JobSpec, wanted: JobSpec, *, own: Iterable[Override], sizes: Mapping[int, int]
) -> Refused | None:
    """Return the refusal for the first volume that would get another size; `sizes` are those
    that differ."""
    before, after = known.default.volume, wanted.default.volume
    if before is not None and after is not None and before.size_mb != after.size_mb:
        text = f"the volumes of the job have {before.size_mb} MB, and keep that size"
        return Refused(INVALID, text, f"config.{DEFAULT}.volume")
    configs = {override.instance: override.config for override in own}
    for instance in sorted({*configs, *sizes}):
        volume = effective(wanted.default, configs.get(instance)).volume
        size = sizes.get(instance)
        if size is None and before is not None and instance < known.instances:
            size = before.size_mb
        if volume is None or size in (None, volume.size_mb) or instance >= wanted.instances:
            continue
        text = f"the volume of instance {instance} has {size} MB, and keeps that size"
        return Refused(INVALID, text, f"config.instanceConfig[{instance}].volume")
    return None
