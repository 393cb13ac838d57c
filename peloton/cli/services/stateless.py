"""`peloton job stateless`: services by specs of v1alpha; the longer verbs have files of their own.

The pool is the path on the command line, not in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from peloton.cli.jobs.job_query import query_options
from peloton.cli.jobs.volume import may_have_volumes, say_that_volumes_stay
from peloton.cli.services import workflow_wait
from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import CliSettings, PelotonCommand
from peloton.cli.shared.output import OutputForms, command, hint, show
from peloton.cli.shared.secret_options import secret_options, secrets_given
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import (
    COUNT,
    SPEC_FILE,
    header_text,
    healthy_option,
    opaque_option,
)
from peloton.cli.shared.watching import watched
from peloton.cli.texts import stateless_rows
from peloton.sdk.errors import Conflict

HERE = __name__
JOB_TEXTS = {"NOT_FOUND": "Job {job} was not found: {m}"}
NOT_STOPPED = "job is not stopped"
VERSION = "[ENTITYVERSION]"

stateless = LazyGroup(
    name="stateless",
    help="Manage services by specs of v1alpha: create, replace, restart, stop, workflows.",
    epilog="""\b
Examples:
  peloton job stateless create /web service.yaml 2
  peloton job stateless replace web service.yaml 2 /web --wait
  peloton job stateless workflow pause web
  peloton job stateless list-pods web
""",
    table={
        "create": LazyCommand(f"{HERE}:create", "Submit a service from a YAML file to a pool."),
        "get": LazyCommand(f"{HERE}:get", "Print a service: its spec and its status."),
        "query": LazyCommand(f"{HERE}:query", "List the services that match."),
        "list": LazyCommand(f"{HERE}:list_", "List all jobs in memory."),
        "replace": LazyCommand(
            "peloton.cli.services.stateless_replace:replace", "Give a service another spec."
        ),
        "replace-diff": LazyCommand(
            "peloton.cli.services.stateless_replace:replace_diff",
            "Show which pods a spec would change.",
        ),
        "rollback": LazyCommand(
            "peloton.cli.services.stateless_replace:rollback", "Give a service an earlier spec."
        ),
        "restart": LazyCommand(
            "peloton.cli.services.stateless_replace:restart", "Restart pods, a batch at a time."
        ),
        "start": LazyCommand(f"{HERE}:start", "Start the stopped pods of a service."),
        "stop": LazyCommand(f"{HERE}:stop", "Stop all pods of a service."),
        "delete": LazyCommand(f"{HERE}:delete", "Delete a service that is stopped."),
        "list-pods": LazyCommand("peloton.cli.services.pod:list_", "List the pods of a service."),
        "query-pods": LazyCommand("peloton.cli.services.pod:query", "List the pods that match."),
        "workflow": LazyCommand(
            "peloton.cli.services.workflow:workflow",
            "Manage updates and restarts: status, pause, abort.",
        ),
        "list-workflows": LazyCommand(
            "peloton.cli.services.workflow:list_workflows",
            "List the updates and restarts of a service.",
        ),
        "list-updates": LazyCommand(
            "peloton.cli.services.workflow:list_updates", "Print them whole.", hidden=True
        ),
        "refresh": LazyCommand(f"{HERE}:refresh", "Check that it exists.", hidden=True),
        "cache": LazyCommand(f"{HERE}:cache", "Print a service's status as YAML."),
    },
)


def is_plain() -> bool:
    """Return whether people read the answer: nothing is printed beside data."""
    return not click.get_current_context().ensure_object(CliSettings).output


def show_version(answer: Any, text: str, *, job: str) -> None:
    """Say which version the service has now."""
    show(OutputForms(answer, text=text.format(v=answer.version.value), names=lambda: [job]))


@click.command(cls=PelotonCommand)
@click.argument("respool")
@click.argument("spec", type=SPEC_FILE)
@click.argument("batch", metavar="BATCH-SIZE", type=COUNT)
@click.option("-i", "--jobID", "wanted_id", default="", help="Use this UUID as its id.")
@secret_options
@click.option(
    "--start-paused", is_flag=True, help="Start paused: begin with no pod until it is resumed."
)
@opaque_option
@click.option(
    "--maxInstanceRetries",
    "max_instance_retries",
    default=0,
    type=COUNT,
    help="Failures after which a pod counts as failed (0: never).",
)
@click.option(
    "--maxTolerableInstanceFailures",
    "max_tolerable_instance_failures",
    default=0,
    type=COUNT,
    help="Failed pods that fail the creation (0: never).",
)
@healthy_option
@click.option(
    "--request-key",
    type=header_text,
    help="Repeat a create under its key: no second service is made.",
)
@workflow_wait.wait_options
def create(
    respool: str, spec: str, batch: int, wanted_id: str, request_key: str | None, wait: bool,
    within_s: float | None, secret_path: tuple[str, ...], secret_data: tuple[str, ...],
    secret_file: tuple[Path, ...], **how: Any,
) -> int:  # fmt: skip
    """Submit the service in the YAML file SPEC to the pool at the path RESPOOL, BATCH-SIZE pods at
    a time; 0 for all at once.

    \b
    peloton job stateless create /web examples/service.yaml 0
    peloton job stateless create /web examples/service.yaml 2 --wait
    """
    secrets = secrets_given(
        secret_path=secret_path, secret_data=secret_data, secret_file=secret_file
    )
    texts = {
        "ALREADY_EXISTS": f"Job {wanted_id} already exists: {{m}}",
        "INVALID_ARGUMENT": "Invalid job spec: {m}",
    }
    with connected() as peloton:
        from peloton.sdk.stateless import BatchOptions

        with spec_in(spec) as given, refusal_texts(texts):
            answer = peloton.stateless.create(
                respool, given, how=BatchOptions(
                    batch, secrets=secrets, request_key=request_key, **how
                ),
                wanted_id=wanted_id,
            )  # fmt: skip
        made = answer.job_id.value
        text = f"Job {made} created. Entity Version: {answer.version.value}"
        show(OutputForms(answer, text=text, names=lambda: [made]))
        code = workflow_wait.after(peloton, made, wait=wait, within_s=within_s)
    if is_plain() and not wait:
        steps = (
            ("job", "stateless", "list-pods", made),
            (*workflow_wait.STATUS, made),
            ("why", made),
        )
        hint("next: " + ", ".join(command(*args) for args in steps))
    return code


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.option(
    "--jobversion", "version", default="", help="Print only the spec, as of this version."
)
@click.option(
    "--summaryonly", "summary_only", is_flag=True, help="Print only the summary of a listing."
)
def get(job: str, version: str, summary_only: bool) -> None:
    """Print JOB: its spec, its status and its newest workflow; or with --jobversion only its spec,
    as it was at this version.

    \b
    peloton job stateless get web
    peloton job stateless get web --summaryonly
    peloton job stateless get web --jobversion 1-1-1
    """
    texts = {} if version else JOB_TEXTS  # the job may be there without this version
    with connected() as peloton, refusal_texts(texts, job=job):
        answer = peloton.stateless.get(job, version=version, summary_only=summary_only)
    show(OutputForms(answer, default="yaml", names=lambda: [job]))


@click.command(cls=PelotonCommand)
@click.argument("job")
def cache(job: str) -> None:
    """Print the status of JOB and the parts of its spec that are kept with it."""
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        answer = peloton.stateless.cache(job)
    show(OutputForms(answer, default="yaml", names=lambda: [job]))


@click.command(cls=PelotonCommand)
@click.argument("job")
def refresh(job: str) -> None:
    """Check that JOB exists; there is nothing to refresh."""
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        answer = peloton.stateless.refresh(job)
    show(OutputForms(answer, default="yaml", names=lambda: [job]))


@click.command(cls=PelotonCommand)
@query_options
@watched
def query(**wanted: Any) -> None:
    """List the jobs that match all of the options, with their workflows.

    \b
    peloton job stateless query --states RUNNING --respool /web
    """
    with connected() as peloton:
        from peloton.sdk.jobs import JobQuery

        answer = peloton.stateless.query(JobQuery(**wanted))
    show(stateless_rows.jobs_view(answer, answer.records))
    seen = wanted["offset"] + len(answer.records)
    if answer.records and seen < answer.pagination.total:
        hint(f"at least {answer.pagination.total} jobs match; go on with --offset {seen}")


@click.command("list", cls=PelotonCommand)
@watched
def list_() -> None:
    """List all jobs in memory, batch jobs included, with their workflows; in no order."""
    with connected() as peloton:
        from peloton.sdk.render import to_dict

        found = [*peloton.stateless.list()]
    show(stateless_rows.jobs_view({"jobs": [to_dict(one) for one in found]}, found))


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@dry_run_option
def start(job: str, version: str, dry_run: bool) -> None:
    """Start all pods of JOB that were stopped. ENTITYVERSION: fail unless it is the current
    version.

    \b
    peloton job stateless start web
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        if dry_run:
            would(f"would start what was stopped of job {job}, {now_of(peloton, job)}", names=[job])
            return
        answer = peloton.stateless.start(job, version=version)
    show_version(answer, "Job started. New EntityVersion: {v}", job=job)


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@dry_run_option
def stop(job: str, version: str, dry_run: bool) -> None:
    """Stop all pods of JOB. ENTITYVERSION: fail unless it is the current version.

    \b
    peloton job stateless stop web
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        if dry_run:
            would(f"would stop all pods of job {job}, {now_of(peloton, job)}", names=[job])
            return
        answer = peloton.stateless.stop(job, version=version)
    show_version(answer, "Job stopped. New EntityVersion: {v}", job=job)


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("version", metavar=VERSION, default="")
@click.option("-f", "--force", is_flag=True, help="Delete it even if it is not stopped.")
@dry_run_option
def delete(job: str, version: str, force: bool, dry_run: bool) -> None:
    """Delete JOB, which must be stopped; --force stops it first. ENTITYVERSION: fail unless it is
    the current version.

    \b
    peloton job stateless delete web
    """
    with connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        if dry_run:
            would(f"would delete job {job}, {now_of(peloton, job)}", names=[job])
            return
        has_volumes = may_have_volumes(peloton, job)
        try:
            answer = peloton.stateless.delete(job, version=version, force=force)
        except Conflict as error:
            if NOT_STOPPED in error.message:
                error.args = (f"{error.message}: stop it first, or use --force",)
            raise
    show(OutputForms(answer, text="Job deleted", names=lambda: [job]))
    if has_volumes:
        say_that_volumes_stay(job)


def now_of(peloton: Any, job: str) -> str:
    """Return what a service is now, for a sentence."""
    from peloton.sdk.render import enum_name

    status = peloton.stateless.get(job, summary_only=True).summary.status
    state = enum_name(status, "state").removeprefix("JOB_STATE_")
    return f"which is {state} at version {status.version.value}"
