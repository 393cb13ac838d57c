"""`peloton follow`: what a job, a pool or kinds of actors do, as it happens.

Must not keep anything: an event is printed when it comes, and the token to go on with at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from peloton.cli.ops import OPS_TEXTS, moment
from peloton.cli.options import CliSettings, OwnCommand
from peloton.cli.output import as_yaml, command, hint, plain
from peloton.cli.session import connected, refusal_texts


@click.command(cls=OwnCommand)
@click.argument("job", default="")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="All of a kind; repeatable.")
@click.option("--pool", default="", metavar="PATH", help="A pool, by path or id, and its jobs.")
@click.option("--resume", default="", metavar="TOKEN", help="Continue where an earlier one ended.")
def follow(job: str, kinds: tuple[str, ...], pool: str, resume: str) -> None:
    """What JOB does, as it happens, until it has ended; or a pool or kinds, until Ctrl-C.

    With `--output json` every line is an event, a gap (changes that are no longer kept: read the
    present state instead) or a token: `--resume TOKEN` continues after the lines before it.

    \b
    peloton follow JOB
    peloton follow --pool /HelloWorldPool
    peloton follow --kind job --kind host --output json
    """
    if bool(job) + bool(kinds) + bool(pool) != 1:
        raise click.UsageError("name one of JOB, --kind and --pool")
    form = click.get_current_context().ensure_object(CliSettings).output or "table"
    token = resume
    with connected() as peloton, refusal_texts(OPS_TEXTS, job=job):
        try:
            watch = peloton.ops.watch
            for message in watch(job=job, kinds=kinds, pool=pool, resume=resume, silent=hint):
                token = message.resume
                for line in lines(message, form):
                    click.echo(line)
                if job and may_be_over(message, job, resumed=bool(resume)):
                    ended = peloton.ops.wait(job, timeout_s=0)
                    if ended.done:
                        hint(f"job {job} has ended: {ended.state}")
                        return
        except KeyboardInterrupt:
            args = [job] if job else ["--pool", pool] if pool else []
            args += [arg for kind in kinds for arg in ("--kind", kind)]
            hint(f"to continue: {command('follow', *args, '--resume', token)}")
            raise


def may_be_over(message: Any, job: str, *, resumed: bool) -> bool:
    """Whether the job may have ended with this message, or before the first one.

    A resumed stream of a job that ended long ago still has events to deliver.
    """
    if not message.events and not message.gaps:
        return not resumed
    return bool(message.gaps) or any(event.key == f"job/{job}" for event in message.events)


def lines(message: Any, form: str) -> Iterator[str]:
    """A message as it is printed."""
    for gap in message.gaps:
        if form in ("json", "yaml"):
            yield _data({"gap": plain(gap)}, form)
        elif form == "table":
            text = f"changes of {gap.shard} up to {gap.until} are no longer kept"
            yield f"-- {text}: read the state anew"
    for event in message.events:
        if form in ("json", "yaml"):
            yield _data({"event": plain(event)}, form)
        else:
            yield event.key if form == "name" else text_of(event)
    if form in ("json", "yaml"):
        yield _data({"resume": message.resume}, form)


def text_of(event: Any) -> str:
    """An event in a line."""
    ranges = ", ".join(
        str(one.first) if one.first == one.last else f"{one.first}-{one.last}"
        for one in event.instances
    )
    # The key already names a single instance.
    where = f" [{ranges}]" if ranges and not event.key.endswith(f"/{ranges}") else ""
    why = f": {event.because}" if event.because else ""
    who = f" by {event.who}" if event.who else ""
    facts = ", ".join(event.facts)
    return f"{moment(event.at)} {event.key}{where} {facts} ({event.cause}{who}){why}"


def _data(data: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(data, ensure_ascii=False)
    return "---\n" + as_yaml(data).rstrip("\n")
