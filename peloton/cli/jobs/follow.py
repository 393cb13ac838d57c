"""`peloton follow`: what a job, a pool or kinds of actors do, as it happens.

An event is printed when it comes, and the token to go on with at the end; nothing is kept.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import click

from peloton.cli.jobs.ops import OPS_TEXTS, moment
from peloton.cli.shared.options import CliSettings, OwnCommand
from peloton.cli.shared.output import as_yaml, command, hint, plain
from peloton.cli.shared.session import connected, refusal_texts
from peloton.printable import escaped
from peloton.sdk.errors import PelotonError

QUIET_S = 1.0
"""A resumed stream that is silent for so long may have delivered all events of its job."""
MESSAGES_MAX = 100
"""How many messages are read ahead of the printing."""


@click.command(cls=OwnCommand)
@click.argument("job", default="")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Follow all of this kind; repeatable."
)
@click.option(
    "--pool", default="", metavar="PATH", help="Follow this pool, by path or id, and its jobs."
)
@click.option("--resume", default="", metavar="TOKEN", help="Continue where an earlier one ended.")
def follow(job: str, kinds: tuple[str, ...], pool: str, resume: str) -> None:
    """Print what JOB does, as it happens, until it has ended; or a pool or kinds, until Ctrl-C.

    What it prints of a job begins with its present state. With `--output json` every line is that
    state, an event, a gap (changes that are no longer kept: read the present state instead) or a
    token: `--resume TOKEN` continues after the lines before it.

    \b
    peloton follow JOB
    peloton follow --pool /HelloWorldPool
    peloton follow --kind job --kind host --output json
    """
    if bool(job) + bool(kinds) + bool(pool) != 1:
        raise click.UsageError("name one of JOB, --kind and --pool")
    form = click.get_current_context().ensure_object(CliSettings).output or "table"
    token = resume
    texts = refusal_texts(OPS_TEXTS, job=job) if job else nullcontext()
    with connected() as peloton, texts:
        try:
            watch = peloton.ops.watch
            stream = watch(job=job, kinds=kinds, pool=pool, since=resume, silent=hint)
            end = EndOfJob(peloton, job, resumed=bool(resume))
            begun = not job or bool(resume)
            # Only a resumed stream of a job can be silent because nothing is left to deliver.
            for message in with_pauses(stream) if job and resume else stream:
                if message is not None:
                    token = message.resume
                    for line in lines(message, form):
                        click.echo(line)
                is_over = bool(job) and end.reached(message)
                if not begun and end.now is not None:
                    begun = True
                    click.echo(state_line(job, end.now, form=form))
                if is_over:
                    hint(f"job {job} has ended: {end.state}")
                    return
        except KeyboardInterrupt:
            args = [job] if job else ["--pool", pool] if pool else []
            args += [arg for kind in kinds for arg in ("--kind", kind)]
            hint(f"to continue: {command('follow', *args, '--resume', token)}")
            raise


class EndOfJob:
    """Checks whether the followed job has ended and its events are printed.

    The cluster is asked only when it may have ended.
    """

    def __init__(self, peloton: Any, job: str, *, resumed: bool) -> None:
        self._peloton = peloton
        self._job = job
        self._resumed = resumed
        self.now: Any | None = None  # as it was when last asked
        self.state = ""

    def reached(self, message: Any | None) -> bool:
        """Return whether it has, after a message, or after a pause of QUIET_S (None)."""
        if message is None:
            # The first pause after the end: its events may still be on their way.
            return bool(self.state) or self._ended(is_last=False)
        return self._may_be_over(message) and self._ended(is_last=True)

    def _may_be_over(self, message: Any) -> bool:
        """Return whether to ask: a resumed stream of a job that ended long ago still has events
        to deliver."""
        if not message.events and not message.gaps:
            return not self._resumed
        # There are no events of other jobs, and the key may be spelled otherwise than JOB.
        return bool(message.gaps) or any(event.key.startswith("job/") for event in message.events)

    def _ended(self, *, is_last: bool) -> bool:
        ended = self.now = self._peloton.ops.wait(self._job, timeout_s=0)
        self.state = ended.state if ended.done else ""
        return bool(ended.done) and is_last


def with_pauses(stream: Iterator[Any]) -> Iterator[Any | None]:
    """Yield the messages, and None whenever none has come for QUIET_S.

    A thread reads the stream, which cannot be waited for with a timeout; it ends with its channel.
    """
    came: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(MESSAGES_MAX)

    def read() -> None:
        try:
            for message in stream:
                came.put((message, None))
            came.put((None, StopIteration()))
        except PelotonError as error:  # raised again where the stream is consumed
            came.put((None, error))
        except BaseException as error:
            came.put((None, error))
            raise

    threading.Thread(target=read, name="follow", daemon=True).start()
    while True:
        try:
            message, error = came.get(timeout=QUIET_S)
        except queue.Empty:
            yield None
            continue
        if isinstance(error, StopIteration):
            return
        if error is not None:
            raise error
        yield message


def lines(message: Any, form: str) -> Iterator[str]:
    """Yield a message as it is printed."""
    for gap in message.gaps:
        if form in ("json", "yaml"):
            yield _data({"gap": plain(gap)}, form)
        elif form == "table":
            text = f"changes of {gap.shard} up to {gap.until} are no longer kept"
            yield escaped(f"-- {text}: read the state anew")
    for event in message.events:
        if form in ("json", "yaml"):
            yield _data({"event": plain(event)}, form)
        else:
            yield escaped(event.key if form == "name" else text_of(event))
    if form in ("json", "yaml"):
        yield _data({"resume": message.resume}, form)


def state_line(job: str, now: Any, *, form: str) -> str:
    """Return the state in which a job is when following it begins."""
    counts = dict(sorted(now.counts.items()))
    if form in ("json", "yaml"):
        state = {"key": f"job/{job}", "state": now.state, "counts": counts}
        return _data({"state": state}, form)
    if form == "name":
        return f"job/{job}"
    told = ", ".join(f"{number} {name}" for name, number in counts.items())
    return f"-- job/{job} is {now.state}" + (f": {told}" if told else "")


def text_of(event: Any) -> str:
    """Return an event in a line."""
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
