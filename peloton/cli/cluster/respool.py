"""`peloton respool`: resource pools, with the texts of the original.

The parent of a pool is in the path on the command line, not in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import CliSettings, PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, plain, show
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import SPEC_FILE
from peloton.cli.shared.watching import watched
from peloton.sdk.errors import AlreadyExists, Conflict, NotFound

if TYPE_CHECKING:
    from peloton.sdk.client import Client

NEEDED = ("cpu", "memory", "disk")
"""Kinds of resources that nearly every task requests."""
HEADER = ("Path", "ID", "Kind", "Reservation", "Limit", "Share", "Allocation")
WIDE_HEADER = ("Type", "Entitlement", "Demand", "Slack")

respool = LazyGroup(
    name="respool",
    help="Manage resource pools: a tree, named by paths such as /research/vision.",
    table={
        "create": LazyCommand(f"{__name__}:create", "Make a pool at a path from a YAML file."),
        "update": LazyCommand(
            "peloton.cli.cluster.respool_update:update", "Give a pool the config in a YAML file."
        ),
        "dump": LazyCommand(f"{__name__}:dump", "Print all pools."),
        "delete": LazyCommand(f"{__name__}:delete", "Delete a pool without children and work."),
    },
)


@click.command(cls=PelotonCommand)
@click.argument("path")
@click.argument("config", type=SPEC_FILE)
@dry_run_option
def create(path: str, config: str, dry_run: bool) -> None:
    """Make a pool at PATH from the YAML file CONFIG.

    \b
    peloton respool create /HelloWorldPool examples/hello_world_pool.yaml
    """
    texts = {
        "alreadyExists": "Already exists: {m}",
        "invalidResourcePoolConfig": "Invalid resource pool config: {m}",
    }
    with spec_in(config) as spec, connected() as peloton, refusal_texts(texts):
        if dry_run:
            would_create(peloton, path, spec=spec)
            return
        pool_id = peloton.pools.create(path, spec)
    show(
        OutputForms(
            {"result": {"value": pool_id}},
            text=f"Resource Pool {pool_id} created at {path}",
            names=lambda: [pool_id],
        )
    )
    known = kinds_of(spec)
    missing = [kind for kind in NEEDED if kind not in known]
    if not known:
        hint("no resources in the file: it has the limits of its parent")
    elif missing:
        names = ", ".join(missing)
        hint(f"its limit of {names} is 0: jobs that request it can never run there")


def would_create(peloton: Client, path: str, *, spec: dict[str, Any]) -> None:
    """Print the pool that would be made, with its defaults."""
    wanted = plain(peloton.pools.built(path, spec))
    try:
        peloton.pools.lookup(path)
    except NotFound:
        kinds = ", ".join(
            f"{one['kind']} {one['reservation']:.10g} to {one['limit']:.10g}"
            for one in wanted["resources"]
        )
        would(f"would create Resource Pool {path}: {kinds}", names=[path], config=wanted)
    else:
        raise AlreadyExists(f"resource pool {path} already exists", kind="alreadyExists")


def kinds_of(spec: dict[str, Any]) -> set[str]:
    """Return the kinds of resources in the file of a pool that was accepted."""
    key = next((key for key in spec if key.lower() == "resources"), "")
    return {
        str(value)
        for one in spec.get(key) or ()
        for name, value in one.items()
        if name.lower() == "kind"
    }


@click.command(cls=PelotonCommand)
@click.option(
    "--format",
    "form",
    type=click.Choice(["yaml", "yml", "json"]),
    help="Print the list of pools in this form.",
)
@watched
def dump(form: str | None) -> None:
    """Print all pools; with `--output table` a line for each resource: limit, and what is used.

    With `--output wide` it has also what each pool may use as the capacity is divided now
    (entitlement), and what waits there (demand). `peloton pool list` prints that in every form.
    """
    settings = click.get_current_context().ensure_object(CliSettings)
    with connected() as peloton:
        answer = peloton.pools.list()
        # The messages of the original have no fields for these.
        standings = peloton.ops.pools().pools if settings.output == "wide" else ()
    # The original prints the bare list in these two formats, and the whole answer with --json.
    pools = plain(answer).get("resourcePools", [])
    whole = form is None and click.get_current_context().obj.values.get("json_")
    show(
        OutputForms(
            plain(answer) if whole else pools,
            default="json" if form == "json" else "yaml",
            header=HEADER,
            rows=lambda: rows(pools),
            wide_header=WIDE_HEADER,
            wide_rows=lambda: wide_rows(pools, standings),
            names=lambda: [pool["path"]["value"] for pool in pools],
        )
    )


def rows(pools: list[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Yield one row for each kind of resource of a pool."""
    for pool in pools:
        path = pool.get("path", {}).get("value", "")
        used = {usage["kind"]: usage["allocation"] for usage in pool.get("usage", [])}
        for kind in pool.get("config", {}).get("resources", []):
            yield (
                path, pool["id"]["value"], kind["kind"], kind["reservation"], kind["limit"],
                kind["share"], used.get(kind["kind"], 0.0),
            )  # fmt: skip


def wide_rows(
    pools: list[dict[str, Any]], standings: Iterable[Any]
) -> Iterator[tuple[object, ...]]:
    """Yield the further columns of `rows`; empty for a pool that came or went between the two
    calls."""
    known = {(pool.id, kind.kind): kind for pool in standings for kind in pool.kinds}
    for pool in pools:
        for kind in pool.get("config", {}).get("resources", []):
            one = known.get((pool["id"]["value"], kind["kind"]))
            yield ("",) * len(WIDE_HEADER) if one is None else (
                one.type, one.entitlement, one.demand, one.slack,
            )  # fmt: skip


@click.command(cls=PelotonCommand)
@click.argument("path")
@dry_run_option
def delete(path: str, dry_run: bool) -> None:
    """Delete the pool at PATH."""
    texts = {
        "notFound": "ResPool Not Found: {path}",
        "isBusy": "ResPool is busy: {m}",
        "isNotLeaf": "ResPool is not leaf: {m}",
        "notDeleted": "ResPool not deleted: {m}",
    }
    with connected() as peloton, refusal_texts(texts, path=path):
        if dry_run:
            would_delete(peloton, path)
            return
        answer = peloton.pools.delete(path)
    # The blank at the end is the original's.
    show(OutputForms(answer, text=f"Resource Pool {path} is deleted ", names=lambda: [path]))


def would_delete(peloton: Client, path: str) -> None:
    """Say whether the pool would be deleted: it must have no children, and nothing allocated."""
    info = peloton.pools.get(peloton.pools.lookup(path)).poolinfo
    if info.children:
        text = f"it has {len(info.children)} child pools"
        raise Conflict(text, kind="isNotLeaf")
    used = ", ".join(f"{one.kind} {one.allocation:.10g}" for one in info.usage if one.allocation)
    if used:
        raise Conflict(f"its tasks hold {used}", kind="isBusy")
    would(f"would delete Resource Pool {path}; refused if tasks wait in it", names=[path])
