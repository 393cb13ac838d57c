"""`peloton job`: create, get, status, delete; the longer verbs have files of their own.

The pool is the path on the command line, not in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peloton.cli.jobs import job_checks
from peloton.cli.jobs.ops import tell_failed_runs
from peloton.cli.jobs.volume import may_have_volumes, say_that_volumes_stay
from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import CliSettings, PelotonCommand
from peloton.cli.shared.output import OutputForms, as_yaml, command, hint, plain, show
from peloton.cli.shared.secret_options import secret_options, secrets_given
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import SPEC_FILE, header_text
from peloton.cli.texts import job_rows
from peloton.sdk.errors import BadSpec, Conflict, NotFound, Unsupported

if TYPE_CHECKING:
    from peloton.sdk.client import Client

TERMINAL = ("SUCCEEDED", "FAILED", "KILLED", "DELETED")
ENDLESS = ("SERVICE", "DAEMON")
"""Types of jobs for whose end nobody waits."""
HERE = __name__

job = LazyGroup(
    name="job",
    help="Manage jobs: batch work and services.",
    table={
        "create": LazyCommand(f"{HERE}:create", "Submit a job from a YAML file to a pool."),
        "get": LazyCommand(f"{HERE}:get", "Print a job: its config and its runtime."),
        "status": LazyCommand(f"{HERE}:status", "Print a job's runtime only."),
        "query": LazyCommand("peloton.cli.jobs.job_query:query", "List the jobs that match."),
        "why": LazyCommand("peloton.cli.jobs.ops:why", "Explain why a job is in its state."),
        "wait": LazyCommand(
            "peloton.cli.jobs.ops:wait", "Wait for a job to end; exits with its code."
        ),
        "progress": LazyCommand(
            "peloton.cli.jobs.job_watch:progress_",
            "Show how far a job is: rate, time left, slowest.",
        ),
        "logs": LazyCommand(
            "peloton.cli.jobs.job_watch:logs", "Print what the instances of a job write."
        ),
        "update": LazyCommand(f"{HERE}:update", "Add instances to a job."),
        "refresh": LazyCommand(f"{HERE}:refresh", "Check that it exists.", hidden=True),
        "stop": LazyCommand(
            "peloton.cli.jobs.job_stop:stop", "Stop a job, or all jobs of an owner."
        ),
        "stateless": LazyCommand(
            "peloton.cli.services.stateless:stateless", "Manage services by specs of v1alpha."
        ),
        "history": LazyCommand(
            "peloton.cli.services.history:history", "List versions, workflows, stops: who and when."
        ),
        "delete": LazyCommand(f"{HERE}:delete", "Delete a job that has ended."),
        "cache": LazyCommand("peloton.cli.jobs.cached:of_job", "Print a job's runtime as JSON."),
        "active-list": LazyCommand(
            "peloton.cli.jobs.cached:active_jobs", "Print the ids of jobs that have not ended."
        ),
        "rolling-restart": LazyCommand(
            "peloton.cli.services.rolling:restart", "Restart instances, a batch at a time."
        ),
        "rolling-start": LazyCommand(
            "peloton.cli.services.rolling:start", "Start instances, a batch at a time."
        ),
        "rolling-stop": LazyCommand(
            "peloton.cli.services.rolling:stop", "Stop instances, a batch at a time."
        ),
    },
)


@click.command(cls=PelotonCommand)
@click.argument("respool")
@click.argument("config", type=SPEC_FILE)
@click.option("-i", "--jobID", "wanted_id", default="", help="Use this UUID as its id.")
@secret_options
@click.option("--dry-run", is_flag=True, help="Print the job as YAML; create nothing.")
@click.option(
    "--request-key", type=header_text, help="Repeat a create under its key: no second job is made."
)
def create(
    respool: str, config: str, wanted_id: str, dry_run: bool, request_key: str | None,
    **secret: Any,
) -> None:  # fmt: skip
    """Submit the job in the YAML file CONFIG to the pool at the path RESPOOL.

    \b
    peloton job create /HelloWorldPool examples/hello_world_job.yaml
    """
    secrets = secrets_given(**secret)
    texts = {
        "alreadyExists": "Job {id} already exists",
        "invalidConfig": "Invalid job config: {m}",
        "invalidJobId": "Invalid job ID: {id}, message: {m}",
    }
    with spec_in(config) as given, connected() as peloton, refusal_texts(texts, id=wanted_id):
        job_checks.check(given)
        spec = job_checks.with_default_resource(peloton, respool, spec=given)
        if dry_run:
            peloton.pools.lookup(respool)
            click.echo(as_yaml({"pool": respool, **job_checks.as_sent(spec)}), nl=False)
            return
        job_checks.warn_of_constraints(peloton, respool, spec=spec)
        answer = peloton.jobs.create(
            respool, spec, wanted_id=wanted_id, secrets=secrets, request_key=request_key
        )
    made = answer.jobId.value
    show(OutputForms(answer, text=f"Job {made} created", names=lambda: [made]))
    if click.get_current_context().ensure_object(CliSettings).output:
        return  # who wants data gets nothing beside it
    from peloton.sdk.jobs import ignored_in_job

    said = ignored_in_job(spec)
    if said:
        hint(said)
    steps = [("task", "list", made), ("why", made)]
    if str(spec.get("type", "")).upper() not in ENDLESS:
        steps.insert(0, ("job", "wait", made))
    hint("next: " + ", ".join(command(*args) for args in steps))


@click.command(cls=PelotonCommand)
@click.argument("job")
@click.argument("config", type=SPEC_FILE)
@click.option("--dry-run", is_flag=True, help="Say what would be added, and change nothing.")
@secret_options
def update(job: str, config: str, dry_run: bool, **secret: Any) -> None:
    """Add instances to JOB: the YAML file CONFIG is its spec with a higher instanceCount.

    \b
    peloton job update JOB examples/hello_world_job.yaml

    The limit of running instances, priority and description may change as well. Existing instances
    keep their configs. The secret of a job has to be given again, with the same or another value.
    """
    secrets = secrets_given(**secret)
    texts = {
        "NOT_FOUND": "Job {id} not found: {m}",
        "INVALID_ARGUMENT": "Invalid job config: {m}",
    }
    with spec_in(config) as spec, connected() as peloton, refusal_texts(texts, id=job):
        job_checks.check_sla(spec)
        spec = job_checks.with_resource_of(lambda: peloton.jobs.get(job).jobInfo.config, spec=spec)
        if dry_run:
            click.echo(f"Job {job} would get {more_instances(peloton, job, spec=spec)}")
            return
        answer = peloton.jobs.update(job, spec, secrets=secrets)
    show(OutputForms(answer, text=f"Job {job} updated", names=lambda: [job]))
    if answer.message and not click.get_current_context().ensure_object(CliSettings).output:
        click.echo(answer.message)


def more_instances(peloton: Client, job: str, *, spec: Any) -> str:
    """Return text about how many instances an update would add. Raises what would refuse it."""
    from peloton.sdk.jobs import TERMINAL_STATES, state_name_of

    info = peloton.jobs.get(job).jobInfo
    if state_name_of(info) in TERMINAL_STATES:
        raise Conflict(f"job {job} has ended: it is {state_name_of(info)}")
    known, wanted = info.config.instanceCount, peloton.jobs.instances_in(spec)
    if wanted < known:
        key, _ = job_checks.field(spec, "instanceCount")
        raise BadSpec(f"{wanted} is less than {known}: instances can only be added", field=key)
    return f"{wanted - known} more instances"


@click.command(cls=PelotonCommand)
@click.argument("job")
def refresh(job: str) -> None:
    """Check that JOB exists; there is nothing to refresh."""
    with connected() as peloton, refusal_texts({"NOT_FOUND": "Job {id} was not found"}, id=job):
        answer = peloton.jobs.refresh(job)
    show(OutputForms(answer, text="", names=lambda: [job]))


def state_of(peloton: Client, job: str) -> str:
    """Return the name of the state of a job."""
    from peloton.sdk.jobs import state_name_of

    return state_name_of(peloton.jobs.get(job).jobInfo)


def fetch(wanted: str) -> Any:
    with connected() as peloton, refusal_texts({"getRuntimeFail": "Unable to get job"}):
        answer = peloton.jobs.get(wanted)
    if not answer.HasField("jobInfo"):
        raise NotFound("Unable to get job")
    return answer


@click.command(cls=PelotonCommand)
@click.argument("job")
def get(job: str) -> None:
    """Print the job JOB: its config and its runtime."""
    answer = fetch(job)
    show(job_rows.view_of_one(answer.jobInfo, answer=answer))
    print_reasons(job)


@click.command(cls=PelotonCommand)
@click.argument("job")
def status(job: str) -> None:
    """Print the runtime of the job JOB: its state, and how many instances are in which."""
    answer = fetch(job)
    runtime = plain(answer)["jobInfo"]["runtime"]
    # The original's --json prints the whole answer here, its YAML the runtime only.
    whole = click.get_current_context().obj.values.get("json_")
    show(job_rows.view_of_one(answer.jobInfo, answer=answer if whole else runtime))
    print_reasons(job)


def print_reasons(job: str) -> None:
    """Print why instances do not run, on stderr: stdout is exactly the original's."""
    with connected() as peloton:
        try:
            reasons = peloton.ops.why(job).reasons
        except Unsupported:
            return  # a cluster of the original does not have this call
    for reason in reasons:
        if reason.code in ("running", "succeeded"):
            continue  # nothing holds these up
        counts = ", ".join(f"{name} {reason.counts[name]}" for name in sorted(reason.counts))
        position = f", queue position {reason.position}" if reason.HasField("position") else ""
        found = f" ({counts})" if counts else ""
        hint(f"why: {reason.state}: {reason.text}{position}{found}")
        tell_failed_runs(job, [reason])


@click.command(cls=PelotonCommand)
@click.argument("job")
@dry_run_option
def delete(job: str, dry_run: bool) -> None:
    """Delete the job JOB, which must have ended."""
    with connected() as peloton, refusal_texts({"NOT_FOUND": "Job {id} was not found"}, id=job):
        if dry_run:
            state = state_of(peloton, job)
            if state not in TERMINAL:
                raise Conflict(f"Job is not in a terminal state: {state}")
            would(f"would delete job {job}, which is {state}", names=[job])
            return
        has_volumes = may_have_volumes(peloton, job)
        answer = peloton.jobs.delete(job)
    show(OutputForms(answer, text=f"Job {job} deleted", names=lambda: [job]))
    if has_volumes:
        say_that_volumes_stay(job)
