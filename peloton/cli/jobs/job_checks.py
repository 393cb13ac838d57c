"""What the command line refuses in the file of a job, and what it adds.

The wire accepts more, for clients that rely on it: refused here is only what a person cannot have
meant. The rules of the server are not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.options import CliSettings
from peloton.cli.shared.output import hint
from peloton.sdk.errors import BadSpec, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client


def check(spec: Mapping[str, Any]) -> None:
    """Refuse a spec that a person cannot have meant.

    A job without a name, an empty command, variables that are given twice, and a limit of running
    instances that is 0. Keys that do not exist come first: a name may be missing because it is
    mistyped.
    """
    from peloton.sdk.jobs import built

    try:
        check_meaning(spec)
    except BadSpec:
        built(spec)
        raise


def check_meaning(spec: Mapping[str, Any]) -> None:
    key, name = field(spec, "name")
    if not isinstance(name, str) or not name.strip():
        raise BadSpec("a job needs a name", field=key)
    check_sla(spec)
    for where, config in configs(spec):
        key, command = field(config, "command")
        if not isinstance(command, Mapping):
            continue
        _, value = field(command, "value")
        _, words = field(command, "arguments")
        if not str(value or "").strip() and not words:
            raise BadSpec("the command is empty: give it a value", field=f"{where}.{key}")
        check_variables(command, f"{where}.{key}")


def check_sla(spec: Mapping[str, Any]) -> None:
    """Refuse a limit of 0: on the wire it means no limit, which a person who writes it hardly
    means."""
    outer, sla = field(spec, "sla")
    if not isinstance(sla, Mapping):
        return
    key, most = field(sla, "maximumRunningInstances")
    if str(most).strip() in ("0", "0.0"):
        text = "must be at least 1; without the key there is no limit"
        raise BadSpec(text, field=f"{outer}.{key}")


def check_variables(command: Mapping[str, Any], where: str) -> None:
    key, environment = field(command, "environment")
    if not isinstance(environment, Mapping):
        return
    inner, variables = field(environment, "variables")
    seen: set[str] = set()
    for at, one in enumerate(variables if isinstance(variables, list) else ()):
        _, name = field(one, "name") if isinstance(one, Mapping) else ("", None)
        if isinstance(name, str):
            if name in seen:
                raise BadSpec(f"{name} is given twice", field=f"{where}.{key}.{inner}[{at}].name")
            seen.add(name)


def configs(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the default config and those of instances, each with its path."""
    key, default = field(spec, "defaultConfig")
    if isinstance(default, Mapping):
        yield key, default
    key, own = field(spec, "instanceConfig")
    for number, config in (own if isinstance(own, Mapping) else {}).items():
        if isinstance(config, Mapping):
            yield f"{key}.{number}", config


def field(data: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """Return a field as its writer spells it, and its value; None if it does not exist."""
    from peloton.sdk import specs

    found = (key for key in data if specs.plain(str(key)) == specs.plain(name))
    key = next(found, None)
    return (name, None) if key is None else (str(key), data[key])


def with_default_resource(peloton: Client, pool: str, *, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec; if its default config has no `resource`, with one, which is printed."""
    from peloton.sdk.defaults import task_share, with_resource
    from peloton.sdk.jobs import built

    if with_resource(spec, {}) is None:
        return spec
    built(spec)  # what is wrong with it comes first: `resource` may be there, mistyped
    resource = task_share(peloton, pool).resource()
    hint(
        "no resource in defaultConfig: each task gets "
        f"{resource['cpuLimit']:g} cpu and {resource['memLimitMb']:g} MB of memory"
    )
    return with_resource(spec, resource) or spec


def with_resource_of(known: Callable[[], Any], *, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec for an existing job; if its default config has no `resource`, with that of
    the job.

    A creation may have added it: a user who did not write it down wants no other. `known` reads the
    config of the job.
    """
    from peloton.sdk.defaults import with_resource
    from peloton.sdk.render import to_dict

    if with_resource(spec, {}) is None:
        return spec
    default = known().defaultConfig
    if not default.HasField("resource"):
        return spec
    resource = default.resource
    hint(
        f"no resource in defaultConfig: each task keeps {resource.cpuLimit:g} cpu and "
        f"{resource.memLimitMb:g} MB of memory"
    )
    return with_resource(spec, to_dict(resource)) or spec


def warn_of_constraints(peloton: Client, pool: str, *, spec: dict[str, Any]) -> None:
    """Say which constraints of the spec no host meets.

    The cluster is not asked about a spec without any, and nothing is printed beside data.
    """
    if click.get_current_context().ensure_object(CliSettings).output or all(
        field(config, "constraint")[1] is None for _, config in configs(spec)
    ):
        return
    try:
        waits = peloton.plans.job(pool, spec).waits
    except PelotonError as error:
        hint(f"whether any host meets the constraint is not known: {error}")
        return
    for one in waits:
        if one.never:
            what = "1 instance" if one.instances == 1 else f"{one.instances} instances"
            hint(f"warning: {what} can never run as things are: {one.text}")


def as_sent(spec: dict[str, Any]) -> Any:
    """Return the spec as the server would get it; raises BadSpec for what is wrong with it."""
    from peloton.sdk.jobs import built
    from peloton.sdk.render import to_dict

    return {key: value for key, value in to_dict(built(spec)).items() if value not in ({}, [], "")}
