"""`peloton respool update`: a pool gets the config in a file.

The config is replaced, not merged: what the file does not say has its default, as when a pool is
created.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import SPEC_FILE

DEFAULT = "(default)"
NOT_GIVEN = ("", [], "UNKNOWN", "PriorityFIFO")
"""Values that say no more than the absence of their key; the policy is always PriorityFIFO."""
PERCENTS = ("controllerLimit", "slackLimit")
UPDATE_TEXTS = {
    "notFound": "Resource pool not found: {m}",
    "invalidResourcePoolConfig": "Invalid resource pool config: {m}",
}


@click.command(cls=PelotonCommand)
@click.argument("path")
@click.argument("config", type=SPEC_FILE)
@click.option(
    "-f", "--force", is_flag=True, help="Do not check the rules of the tree. It asks before."
)
@dry_run_option
def update(path: str, config: str, force: bool, dry_run: bool) -> None:
    """Give the pool at PATH the config in the YAML file CONFIG, which replaces the one it has.

    \b
    peloton respool update /research pool.yaml
    peloton respool update /research pool.yaml --dry-run
    """
    with spec_in(config) as spec, connected() as peloton, refusal_texts(UPDATE_TEXTS):
        if dry_run:
            wanted = peloton.pools.built(path, spec)
            had = peloton.pools.get(peloton.pools.lookup(path)).poolinfo.config
            changes = [*differences(had, wanted)]
            lines = [f"would change {one}" for one in changes] or ["would change nothing"]
            would(f"Resource Pool {path}:", *lines, names=[path], changes=changes)
            return
        if force and not forced():
            hint("not updated")
            return
        answer = peloton.pools.update(path, spec, force=force)
    show(OutputForms(answer, text=f"Resource Pool {path} updated", names=lambda: [path]))


def forced() -> bool:
    """Ask whether to go on; the end of the input means no."""
    hint("with --force the limits and reservations of the tree are not checked")
    try:
        return click.confirm("Would you like to proceed?", err=True)
    except click.Abort:
        return False


def differences(had: Any, wanted: Any) -> Iterator[str]:
    """Yield what differs between two configs of a pool, resource by resource."""
    before, after = told(had), told(wanted)
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, DEFAULT), after.get(name, DEFAULT)
        if old != new:
            yield f"{name}: {old} -> {new}"


def told(config: Any) -> dict[str, str]:
    """Return what people may change of a config, each as a text; what is not given is left out."""
    from peloton.sdk.render import to_dict

    found = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in to_dict(config).items()
        if value not in NOT_GIVEN and not isinstance(value, dict) and name != "resources"
    }
    for name in PERCENTS:
        if config.HasField(name):
            found[f"{name}.maxPercent"] = f"{getattr(config, name).maxPercent:.10g}"
    for one in config.resources:
        amounts = {"reservation": one.reservation, "limit": one.limit}
        amounts |= {"share": one.share} if one.share != 1.0 else {}
        found |= {f"{one.kind} {name}": f"{of:.10g}" for name, of in amounts.items() if of}
    return found
