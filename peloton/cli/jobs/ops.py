"""`peloton why`, `wait` and `story`: the questions asked most.

If the wait is interrupted, the job goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from peloton.cli.shared import exits
from peloton.cli.shared.names import key_of
from peloton.cli.shared.options import CliSettings, OwnCommand
from peloton.cli.shared.output import OutputForms, command, hint, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.times import span
from peloton.cli.shared.values import COUNT, duration
from peloton.sdk.errors import PelotonError

HEADER = ("Instance", "State", "Reason", "Position", "Why", "Counts", "Next Try")
OPS_TEXTS = {"NOT_FOUND": "Job {job}: {m}"}
WHY_COLUMNS_MAX = 60
"""Of a reason in a table that is not on a terminal, where nothing is folded."""
STORY_HEADER = ("Time", "Message", "Because", "Facts", "Who")


@click.command(cls=OwnCommand)
@click.argument("job")
@click.argument("instance", type=COUNT, required=False)
def why(job: str, instance: int | None) -> None:
    """Explain why JOB, or one INSTANCE of it, is in its state.

    The table has the main reason. Below it stands all that is in the way, what would have to
    change, and an estimate of when, or why there is none.

    \b
    peloton why JOB
    peloton why JOB 7
    peloton why JOB -o json
    """
    with connected() as peloton, refusal_texts(OPS_TEXTS, job=job):
        answer = peloton.ops.why(job, instance)
    now, cut = time.time(), not sys.stdout.isatty()
    counted = sum(reason.instances for reason in answer.reasons)
    if counted < sum(answer.counts.values()):
        counts = ", ".join(f"{answer.counts[name]} {name}" for name in sorted(answer.counts))
        hint(f"of all instances: {counts}")
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: [row(reason, now, cut=cut) for reason in answer.reasons],
            names=lambda: dict.fromkeys(reason.code for reason in answer.reasons),
            nothing="Nothing holds it up.",
            compact=True,
            below=[
                *(cut_texts(answer.reasons) if cut else ()),
                *(line for reason in answer.reasons for line in in_the_way(reason)),
            ],
        )
    )
    tell_failed_runs(job, answer.reasons)
    failed = [
        reason.instance
        for reason in answer.reasons
        if reason.state in ("FAILED", "LOST") and not reason.run
    ]
    if failed and not click.get_current_context().ensure_object(CliSettings).output:
        name_failed(job, instance)
        hint(f"next: {command('task', 'logs', job, str(min(failed)), '-f', 'stderr')}")


def tell_failed_runs(job: str, reasons: Iterable[Any]) -> None:
    """Print, on stderr, what the runs wrote last by which an update failed."""
    for reason in reasons:
        if reason.run:
            from peloton.cli.jobs.failed import run_lines

            with connected() as peloton:
                for line in run_lines(peloton, job, instance=reason.instance, run=reason.run):
                    hint(f"    {line}")


def name_failed(job: str, instance: int | None) -> None:
    """Print which instances have failed and how, on stderr: the table has only the reasons."""
    from peloton.cli.jobs.failed import groups_lines

    try:
        with connected() as peloton:
            for line in groups_lines(peloton, job, only=instance):
                hint(line)
    except PelotonError as error:
        hint(f"which instances have failed is not known: {error}")


def row(reason: Any, now: float, *, cut: bool = False) -> Sequence[object]:
    def known(field: str) -> Any:
        return getattr(reason, field) if reason.HasField(field) else ""

    counts = ", ".join(f"{name} {reason.counts[name]}" for name in sorted(reason.counts))
    retry_at = known("retry_at")
    again = f"in {max(retry_at - now, 0):.0f}s" if retry_at != "" else ""
    who, text = who_and_text(reason)
    if cut and len(text) > WHY_COLUMNS_MAX:
        text = text[: WHY_COLUMNS_MAX - 1] + "…"
    return (
        who, reason.state, reason.code, known("position"), text, counts, again,
    )  # fmt: skip


def who_and_text(reason: Any) -> tuple[str, str]:
    """Return the instances that a reason is about, and its whole text."""
    # Old knowledge is shown as old: the reader may be looking at a cluster of a minute ago.
    text = f"{reason.text} ({span(reason.age_s)} ago)" if reason.age_s >= 1 else reason.text
    who = str(reason.instance) if reason.HasField("instance") else ""
    if reason.instances > 1:
        who = f"{reason.instances} instances"
        text = text.removeprefix(f"{who}: ")  # it is printed once
    return who, text


def cut_texts(reasons: Any) -> Iterator[str]:
    """Yield in full, one line each, the texts for which the table of a pipe has no space."""
    for reason in reasons:
        who, text = who_and_text(reason)
        if len(text) > WHY_COLUMNS_MAX:
            yield f"{who or 'the job'}: {text}"


def in_the_way(reason: Any) -> Iterator[str]:
    """Yield all that keeps these instances from their goal, one line each, and when that may be
    over."""
    if not reason.blockers:
        return
    number = reason.instance if reason.HasField("instance") else None
    who = "the job" if number is None else f"instance {number}"
    if reason.instances > 1:
        who += f" and {reason.instances - 1} more"
    yield ""
    yield f"In the way of {who}:"
    yield from blocker_lines(reason.blockers)
    if reason.HasField("estimate"):
        yield f"  {estimate_text(reason.estimate)}"


def blocker_lines(blockers: Any) -> Iterator[str]:
    for blocker in blockers:
        never = "; will never run: " + blocker.proof if blocker.never else ""
        yield f"  {blocker.code}: {blocker.text}{never}"
        yield f"    to do: {blocker.change}"


def estimate_text(estimate: Any) -> str:
    """Return an estimate, marked as such, or why there is none."""
    if not estimate.HasField("after_s"):
        return f"no estimate: {estimate.basis}"
    last = f" to {about_so_long(estimate.until_s)}" if estimate.HasField("until_s") else ""
    return f"estimate: in {about_so_long(estimate.after_s)}{last} ({estimate.basis})"


def about_so_long(seconds: float) -> str:
    """Return a rounded length of time: more digits would promise too much."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {max(seconds, 1):.0f} s"


class WaitCommand(OwnCommand):
    """A command that finds its jobs by name as patiently as it waits for them."""

    def job_ids(self, ctx: click.Context, typed: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the jobs that were typed; a daemon may be restarting meanwhile.

        The time that this takes is part of that of --within.
        """
        from peloton.sdk.errors import ServiceUnavailable
        from peloton.sdk.ops import patiently

        find, within_s, begun_s = super().job_ids, ctx.params["within_s"], time.monotonic()
        try:
            found = patiently(lambda: find(ctx, typed), timeout_s=within_s, silent=hint)
        except ServiceUnavailable as error:
            if within_s is None:
                raise
            hint(f"the time is over; {error}")
            ctx.exit(exits.WAIT_OVER)
        if within_s is not None:
            ctx.params["within_s"] = max(within_s - (time.monotonic() - begun_s), 0.0)
        return found


@click.command(cls=WaitCommand)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option(
    "--within",
    "--timeout",
    "-t",
    "within_s",
    type=duration,
    metavar="TIME",
    help="Stop waiting after this; exits with 124.",
)
@click.option("--raw-exit", is_flag=True, help="Return the real exit code even if it is above 62.")
def wait(jobs: tuple[str, ...], within_s: float | None, raw_exit: bool) -> int:
    """Wait for JOB to end, and exit as it did; of several as the first of them that failed.

    A server that does not answer is called again for a minute, in which a daemon can restart. With
    --within only that time counts, for all jobs together.

    \b
    peloton wait JOB --within 10m && echo done

    \b
    Exits with
      0         the job succeeded
      1 to 62   the exit code of its lowest instance that failed
      63        that code was 63 or higher: 64 and above are this tool's own.
                With --raw-exit the real one is the exit code here, too:
                128 and the signal's number where a signal ended it.
                `--output json` has it in exit_code, or names the signal
      64 to 77  the command itself went wrong: 64 usage, 66 no such job,
                69 no answer for a minute; of `run`, `map` and `job logs`
                74: output is gone
      124       the time of --within is over, and the job goes on;
                also where the server did not answer
      125       the job ended without a code of its own: it was killed, or never run
      130       interrupted; the job goes on
    """
    until = None if within_s is None else time.monotonic() + within_s
    code = exits.OK
    for job in dict.fromkeys(jobs):
        left_s = None if until is None else max(until - time.monotonic(), 0.0)
        found = wait_for_one(job, left_s, raw=raw_exit)
        # That a job goes on is said by 124, whatever the code of those that have ended.
        code = found if found == exits.WAIT_OVER else code or found
    return code


def wait_for_one(job: str, within_s: float | None, *, raw: bool) -> int:
    with connected() as peloton, refusal_texts(OPS_TEXTS, job=job):
        try:
            with progress_of(job) as seen:
                ended = peloton.ops.wait(job, timeout_s=within_s, silent=hint, seen=seen)
        except KeyboardInterrupt:
            hint(f"job {job} goes on; `{command('job', 'stop', job)}` ends it")
            raise
    show_end(job, ended)
    if not ended.done:
        return exits.WAIT_OVER
    return exits.of_job(ended, raw=raw)


@contextmanager
def progress_of(job: str) -> Iterator[Callable[[Any], None] | None]:
    """Yield the callback for progress: a bar, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from peloton.cli.shared import screen

    with screen.progress(job) as seen:
        yield lambda ended: seen(ended.state, ended.counts)


def ended_answer(job: str, ended: Any) -> dict[str, Any]:
    """Return the result of a wait as data."""
    has_code = ended.done and ended.state in ("SUCCEEDED", "FAILED") and not ended.problem
    return {
        "job_id": job,
        "state": ended.state,
        "done": ended.done,
        "counts": dict(sorted(ended.counts.items())),
        # No exit code if a signal ended it, if it was killed or never run, or if it goes on: the
        # code of a shell (128 and the number) is for shells only.
        "exit_code": ended.exit_code if has_code and not ended.signal else None,
        "signal": ended.signal or None,
        "problem": ended.problem or None,
    }


def show_end(job: str, ended: Any) -> None:
    """Print the result of a wait, and a hint at the next command."""
    counts = ", ".join(f"{number} {state}" for state, number in sorted(ended.counts.items()))
    text = f"Job {job} {ended.state or 'in an unknown state'}" + (f": {counts}" if counts else "")
    show(OutputForms(ended_answer(job, ended), text=text, names=lambda: [job]))
    if not ended.done:
        hint("the time is over; " + ("the job goes on" if ended.state else "no server answered"))
        return
    if ended.signal:
        hint(f"its lowest failed instance was ended by {ended.signal}")
    elif ended.problem:
        hint(f"its lowest failed instance: {ended.problem}")
    elif ended.state == "FAILED" and ended.exit_code > 0:
        hint(f"its lowest failed instance ended with exit code {ended.exit_code}")
    if ended.state != "SUCCEEDED":
        hint(f"next: {command('why', job)}")


@click.command(cls=OwnCommand)
@click.argument("key")
def story(key: str) -> None:
    """Print the recent transitions of the actor KEY, with their causes.

    A job stands there by its id, its name or the beginning of its id; without a kind, KEY is a job.

    \b
    peloton story JOB
    peloton story task/JOB/7
    peloton story host/peloton-mesos-agent0
    """
    with connected() as peloton:
        answer = peloton.ops.story(key_of(peloton, key))
    show(
        OutputForms(
            answer,
            header=STORY_HEADER,
            rows=lambda: map(line_row, answer.lines),
            names=lambda: dict.fromkeys(line.because for line in answer.lines),
            nothing="No transitions are kept.",
            compact=True,
        )
    )


def line_row(line: Any) -> Sequence[object]:
    return moment(line.at), line.cause, line.because, ", ".join(line.facts), line.who


def moment(at: float) -> str:
    """Return a time in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
