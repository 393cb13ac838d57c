"""`peloton job stateless replace`, `replace-diff`, `rollback` and `restart`: begin workflows.

The service chooses the pods, a batch at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.services import workflow_wait
from peloton.cli.services.stateless import JOB_TEXTS, VERSION, is_plain, show_version
from peloton.cli.shared import exits
from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.options import ChangingCommand, PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.secret_options import secret_options, secrets_given
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import COUNT, SPEC_FILE, healthy_option, opaque_option, ranges_option
from peloton.cli.texts.stateless_rows import short
from peloton.sdk.errors import Conflict

if TYPE_CHECKING:
    from peloton.sdk.client import Client

VERSION_NUMBER = re.compile(r"[0-9]+(-[0-9]+-[0-9]+)?", re.ASCII)
NEW_VERSION = "New EntityVersion: {v}"
SPEC_TEXTS = {"INVALID_ARGUMENT": "Invalid job spec: {m}", **JOB_TEXTS}


def batch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for how an update proceeds."""
    for option in (
        click.option("--start-pods", is_flag=True, help="Start stopped pods, too."),
        click.option("--in-place", is_flag=True, help="Keep pods on their hosts."),
        opaque_option,
        click.option("--start-paused", is_flag=True,
                     help="Start paused: begin with no pod until it is resumed."),
        click.option("--maxTolerableInstanceFailures", "max_tolerable_instance_failures",
                     default=0, type=COUNT, help="Failed pods that fail the update (0: never)."),
        click.option("--maxInstanceRetries", "max_instance_retries", default=0, type=COUNT,
                     help="Failures after which a pod counts as failed (0: never)."),
        healthy_option,
    ):  # fmt: skip
        function = option(function)
    return function


@click.command(cls=ChangingCommand)
@click.argument("job")
@click.argument("spec", type=SPEC_FILE)
@click.argument("batch", metavar="BATCH-SIZE", type=COUNT)
@click.argument("respool")
@click.argument("version", metavar=VERSION, default="")
@click.option("-o", "--override", is_flag=True, hidden=True, help="No effect, as in the original.")
@click.option(
    "--rollbackOnFailure",
    "rollback_on_failure",
    is_flag=True,
    help="Restore the previous spec if the update fails.",
)
@secret_options
@batch_options
@workflow_wait.wait_options
def replace(
    job: str, spec: str, batch: int, respool: str, version: str, override: bool, wait: bool,
    within_s: float | None, secret_path: tuple[str, ...], secret_data: tuple[str, ...],
    secret_file: tuple[Path, ...], **how: Any,
) -> int:  # fmt: skip
    """Give JOB, in the pool at RESPOOL, the spec in the YAML file SPEC, BATCH-SIZE pods at a time;
    0 for all at once. ENTITYVERSION: fail unless it is the current version. Secrets that are not
    given keep their values.

    \b
    peloton job stateless replace web service.yaml 2 /web
    peloton job stateless replace web service.yaml 2 /web --maxInstanceRetries 3 \\
      --maxTolerableInstanceFailures 1 --rollbackOnFailure --wait
    """
    secrets = secrets_given(
        secret_path=secret_path, secret_data=secret_data, secret_file=secret_file
    )
    with connected() as peloton:
        from peloton.sdk.stateless import BatchOptions

        options = BatchOptions(batch, secrets=secrets, **how)
        with spec_in(spec) as given, refusal_texts(SPEC_TEXTS, job=job):
            before = name_of(peloton, job) if is_plain() else ""
            answer = peloton.stateless.replace(
                job, given, pool=respool, version=version, how=options
            )
        if before:
            say_if_renamed(before, given.get("name"))
        show_version(answer, NEW_VERSION, job=job)
        return workflow_wait.after(peloton, job, wait=wait, within_s=within_s)


def name_of(peloton: Client, job: str) -> str:
    return str(peloton.stateless.get(job, summary_only=True).summary.name)


def say_if_renamed(name: str, wanted: Any) -> None:
    """Warn of a spec with another name, which the service now has: the file may be a wrong one."""
    if wanted and wanted != name:
        hint(f"warning: the service {name} is renamed to {wanted}, as in the spec")


@click.command("replace-diff", cls=PelotonCommand)
@click.argument("job")
@click.argument("spec", type=SPEC_FILE)
@click.argument("respool")
@click.argument("version", metavar=VERSION, default="")
def replace_diff(job: str, spec: str, respool: str, version: str) -> None:
    """Print which pods of JOB a replacement by SPEC would change, as JSON; both ends of each range
    are pods. `peloton diff` says the same for people, and which fields differ.
    """
    with connected() as peloton, spec_in(spec) as given, refusal_texts(SPEC_TEXTS, job=job):
        answer = peloton.stateless.diff(job, given, pool=respool, version=version)
    show(OutputForms(answer, default="json", names=lambda: [job]))


@click.command(cls=ChangingCommand)
@click.argument("job")
@click.argument("batch", metavar="BATCH-SIZE", type=COUNT, default=None, required=False)
@click.argument("version", metavar="ENTITYVERSION", default="")
@click.option("--to", metavar="N", help="The version to go back to, as `job history` names it.")
@batch_options
@workflow_wait.wait_options
def rollback(
    job: str, batch: int | None, version: str, to: str | None, wait: bool,
    within_s: float | None, **how: Any,
) -> int:  # fmt: skip
    """Give JOB the spec before its last update, or that of version N or ENTITYVERSION.

    BATCH-SIZE pods at a time, or as many as in that update; 0 for all at once. It begins an update
    with a new version. Updates that were rolled back do not count. The last 20 specs before the
    present one are kept. Daemon jobs go back in the same way.

    \b
    peloton rollback web
    peloton rollback web --to 3
    peloton job stateless rollback web 2 1-1-1
    """
    if to is not None and (version or not VERSION_NUMBER.fullmatch(to)):
        raise click.UsageError(f"--to takes one version, such as 3, got {to} {version}".rstrip())
    with connected() as peloton:
        from peloton.sdk.stateless import BatchOptions

        refuse_batch_job(peloton, job)
        if to is not None:
            version = to if "-" in to else f"{to}-1-1"  # the number alone says which spec is meant
        if not version or batch is None:
            before, usual = last_update(peloton, job, must_be=not version)
            version, batch = version or before, usual if batch is None else batch
        refuse_present(peloton, job, version=version)
        spec = peloton.stateless.get(job, version=version).job_info.spec
        answer = peloton.stateless.replace(job, spec, how=BatchOptions(batch, **how))
        show_version(answer, NEW_VERSION, job=job)
        return workflow_wait.after(peloton, job, wait=wait, within_s=within_s)


def refuse_batch_job(peloton: Client, job: str) -> None:
    """Raise Conflict for a job without versions."""
    from peloton.sdk.render import enum_name

    if enum_name(peloton.jobs.get(job).jobInfo.config, "type") == "BATCH":
        raise Conflict(f"job {job} is a batch job: only services go back to earlier specs")


def last_update(peloton: Client, job: str, *, must_be: bool = True) -> tuple[str, int]:
    """Return the version before the last update that was not rolled back, and its batch size.

    Without one raise Conflict, or return a batch of all pods.
    """
    for info in peloton.stateless.workflows(job).workflow_infos:  # the newest first
        before = info.status.prev_version.value
        is_update = short(info.status, "type") == "UPDATE" and not before.startswith("0-")
        if is_update and short(info.status, "state") != "ROLLED_BACK":
            return before, info.update_spec.batch_size
    if must_be:
        text = "has no earlier spec to go back to"
        raise Conflict(f"job {job} {text}: `peloton job history` shows what was done to it")
    return "", 0


def refuse_present(peloton: Client, job: str, *, version: str) -> None:
    """Raise Conflict for the version that a job has."""
    status = peloton.stateless.get(job, summary_only=True).summary.status
    now = status.version.value
    if version.partition("-")[0] == now.partition("-")[0]:
        raise Conflict(f"job {job} has this spec already, at version {now}: nothing changes")


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@ranges_option
@opaque_option
@click.option(
    "--batch-size", "batch", default=0, type=COUNT, help="Restart this many pods at a time."
)
@click.option("--in-place", is_flag=True, help="Keep pods on their hosts.")
@healthy_option
@dry_run_option
@workflow_wait.wait_options
def restart(
    job: str, version: str, ranges: tuple[tuple[int, int], ...], batch: int, dry_run: bool,
    wait: bool, within_s: float | None, **how: Any,
) -> int:  # fmt: skip
    """Restart all pods of JOB, or those in ranges. ENTITYVERSION: fail unless it is the current
    version.

    \b
    peloton job stateless restart web --batch-size 2 --wait
    peloton job stateless restart web -r 0:10
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        from peloton.cli.shared.dry_run import check_ranges, instances_text
        from peloton.sdk.stateless import BatchOptions

        check_ranges(peloton, job, ranges=ranges)
        if dry_run:
            would("would restart " + instances_text(peloton, job, ranges=ranges), names=[job])
            return exits.OK
        answer = peloton.stateless.restart(
            job, ranges, version=version, how=BatchOptions(batch, **how)
        )
        show_version(answer, "Job restarted. New EntityVersion: {v}", job=job)
        return workflow_wait.after(peloton, job, wait=wait, within_s=within_s)
