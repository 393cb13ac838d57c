"""`peloton job`: create, get, status, delete; the longer verbs have files of their own.

Must not read the pool from the file: it is the path on the command line.
"""

from __future__ import annotations

from typing import Any

import click

from peloton.cli import job_rows
from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import CliSettings, PelotonCommand
from peloton.cli.output import OutputForms, command, hint, plain, show
from peloton.cli.session import connected, refusal_texts, spec_in
from peloton.cli.unimplemented import entries
from peloton.cli.values import header_text
from peloton.sdk.errors import NotFound, Unsupported

HERE = __name__

job = LazyGroup(
    name="job",
    help="Jobs: batch work and services.",
    table={
        "create": LazyCommand(f"{HERE}:create", "Submit a job from a YAML file to a pool."),
        "get": LazyCommand(f"{HERE}:get", "Print a job: its config and its runtime."),
        "status": LazyCommand(f"{HERE}:status", "Print a job's runtime only."),
        "query": LazyCommand("peloton.cli.job_query:query", "List the jobs that match."),
        "why": LazyCommand("peloton.cli.ops:why", "Why a job is in the state it is in."),
        "wait": LazyCommand("peloton.cli.ops:wait", "Wait for a job to end; exits with its code."),
        "stop": LazyCommand("peloton.cli.job_stop:stop", "Stop a job, or all jobs of an owner."),
        "delete": LazyCommand(f"{HERE}:delete", "Delete a job that has ended."),
    }
    | entries(
        "refresh", "update", "rolling-restart", "rolling-start", "rolling-stop", "cache",
        "active-list", "stateless",
    ),
)  # fmt: skip


@click.command(cls=PelotonCommand)
@click.argument("respool")
@click.argument("config")
@click.option("-i", "--jobID", "wanted_id", default="", help="A UUID of your own.")
@click.option("--secret-path", default="", help="Where the tasks find the secret.")
@click.option("--secret-data", default="", help="The secret, as text.")
@click.option(
    "--request-key", type=header_text, help="Repeat a create under its key: no second job is made."
)
def create(
    respool: str, config: str, wanted_id: str, secret_path: str, secret_data: str,
    request_key: str | None,
) -> None:  # fmt: skip
    """Submit the job in the YAML file CONFIG to the pool at the path RESPOOL.

    \b
    peloton job create /HelloWorldPool examples/hello_world_job.yaml
    """
    if bool(secret_path) != bool(secret_data):
        raise click.UsageError("both secret-path and secret-data must be provided")
    texts = {
        "alreadyExists": "Job {id} already exists",
        "invalidConfig": "Invalid job config: {m}",
        "invalidJobId": "Invalid job ID: {id}, message: {m}",
    }
    with spec_in(config) as spec, connected() as peloton, refusal_texts(texts, id=wanted_id):
        secrets: tuple[Any, ...] = ()
        if secret_path:
            from peloton.sdk.jobs import secret

            secrets = (secret(secret_path, secret_data.encode()),)
        answer = peloton.jobs.create(
            respool, spec, wanted_id=wanted_id, secrets=secrets, request_key=request_key
        )
    made = answer.jobId.value
    show(OutputForms(answer, text=f"Job {made} created", names=lambda: [made]))
    if click.get_current_context().ensure_object(CliSettings).output:
        return  # who wants data gets nothing beside it
    steps = (("job", "wait", made), ("task", "list", made), ("why", made))
    hint("next: " + ", ".join(command(*args) for args in steps))


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
    """Why instances do not run, on stderr: stdout is exactly the original's."""
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


@click.command(cls=PelotonCommand)
@click.argument("job")
def delete(job: str) -> None:
    """Delete the job JOB, which must have ended."""
    with connected() as peloton, refusal_texts({"NOT_FOUND": "Job {id} was not found"}, id=job):
        answer = peloton.jobs.delete(job)
    show(OutputForms(answer, text=f"Job {job} deleted", names=lambda: [job]))
