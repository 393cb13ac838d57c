"""`job cache`, `job active-list` and `task cache`: what the daemons hold of jobs, as JSON.

The answers are printed unchanged, as programs read them.
"""

from __future__ import annotations

import click

from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.values import COUNT


@click.command("cache", cls=PelotonCommand)
@click.argument("job")
def of_job(job: str) -> None:
    """Print the runtime of JOB and the parts of its config that are kept with it."""
    with connected() as peloton, refusal_texts({"NOT_FOUND": "Job {id} was not found"}, id=job):
        answer = peloton.jobs.cache(job)
    show(OutputForms(answer, default="json", names=lambda: [job]))


@click.command("active-list", cls=PelotonCommand)
def active_jobs() -> None:
    """Print the ids of all jobs that have not ended."""
    with connected() as peloton:
        answer = peloton.jobs.active()
    show(OutputForms(answer, default="json", names=lambda: [one.value for one in answer.ids]))


@click.command("cache", cls=PelotonCommand)
@click.argument("job")
@click.argument("instance", type=COUNT)
def of_task(job: str, instance: int) -> None:
    """Print the runtime and the labels of one INSTANCE of JOB."""
    texts = {"NOT_FOUND": "Job {id}, instance {instance}: {m}"}
    with connected() as peloton, refusal_texts(texts, id=job, instance=instance):
        answer = peloton.tasks.cache(job, instance)
    show(OutputForms(answer, default="json", names=lambda: [f"{job}-{instance}"]))
