"""JobService.PatchJob: some fields of the spec of a service, the others as they are.

The spec that a job has and a patch give the spec that it is to have, whose rules are checked as for
any other replacement.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless


def patched(known: stateless.JobSpec, patch: stateless.JobSpec) -> stateless.JobSpec:
    """Return the spec with the fields of the patch that are set.

    Messages are patched field by field, and so are the specs of single instances; a list replaces
    the list. What is empty or 0 in the patch stays as it is.
    """
    found = stateless.JobSpec()
    found.CopyFrom(known)
    found.ClearField("revision")
    _merge(found, patch)
    return found


def _merge(target: Any, patch: Any) -> None:
    for field, value in patch.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                _merge(getattr(target, field.name)[key], value[key])
        elif isinstance(value, MutableSequence):
            target.ClearField(field.name)
            getattr(target, field.name).extend(value)
        elif field.message_type is not None:
            getattr(target, field.name).SetInParent()
            _merge(getattr(target, field.name), value)
        else:
            setattr(target, field.name, value)
