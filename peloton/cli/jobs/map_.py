"""`peloton map`: many commands as one job, with progress, their outputs, and what failed.

Each command is the own config of one instance. The progress comes from counts, so that not all
instances are read for each step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.jobs import attend, batch
from peloton.cli.jobs.batch import PAGE
from peloton.cli.jobs.failed import FAILED_STATES, failed_again, failed_lines, numbers_of
from peloton.cli.jobs.lines import (
    FILES,
    VALUES,
    BadCommands,
    commands_in,
    filled,
    has_place,
    parted,
)
from peloton.cli.jobs.waiting import WhyWaiting
from peloton.cli.shared import exits
from peloton.cli.shared.names import id_of
from peloton.cli.shared.options import CliSettings, typed_names
from peloton.cli.shared.output import OutputForms, as_yaml, command, hint, show
from peloton.cli.shared.session import pool_typed
from peloton.cli.shared.values import SPEC_FILE
from peloton.cli.texts.outputs import (
    Collected,
    Printed,
    Results,
    Sink,
    gone_text,
    results_folder,
)
from peloton.cli.texts.progress import progress
from peloton.cli.texts.task_texts import ended_of
from peloton.sdk.errors import BadSpec

if TYPE_CHECKING:
    from peloton.sdk.client import Client

FAILED_SHOWN_MAX = 20
COMMAND_BYTES_MAX, COMMAND_BYTES_MEAN = 64 * 1024, 1200
NAME_DEFAULT = "map"
KEPT = ("workdir", "env_all", "clean_env")
"""Options that have no meaning for what runs again."""
ROOM_BYTES = PAGE * COMMAND_BYTES_MEAN
"""What the configs of so many instances, which are kept together, have room for."""
MANY, MANY_TIMEOUT_S = 5000, 120.0
"""A call that creates so many own configs may take longer than the usual time of a call."""


class MapCommand(batch.BatchCommand):
    """A command whose options may stand behind FILE as well, as no command precedes them there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        found, _, _ = self.make_parser(ctx).parse_args([*args])
        words = found.get("words")
        # Where there is none, click has a mark of its own.
        if isinstance(words, tuple) and len(words) > 1 and is_file_of_commands(words):
            before = args[: len(args) - len(words)]
            before = before[:-1] if before[-1:] == ["--"] else before
            args = [*before, *words[1:], "--", words[0]]
        return super().parse_args(ctx, args)


def is_file_of_commands(words: Sequence[str]) -> bool:
    """Return whether the first word is a file of commands, and no template."""
    if any(word in (VALUES, FILES) for word in words):
        return False
    return Path(words[0]).is_file() or (words[0] == "-" and words[1].startswith("-"))


@click.command(cls=MapCommand)
@batch.batch_options
@click.option("--keep-order", "-k", is_flag=True, help="Print outputs in the order of the lines.")
@click.option(
    "--tag", is_flag=True, help="Begin each line of output with the number of its command, from 1."
)
@click.option(
    "--logs/--no-logs",
    "logs",
    default=None,
    help="Print what the commands print.  [default: with --results no, else yes]",
)
@click.option(
    "--results", metavar="DIR", default="",
    help="Write each output to DIR/N/stdout, DIR/N/stderr and DIR/N/code (the exit code; 128 + "
    "the number of a signal; empty where there is none). N is the number of the instance, "
         "from 0.",
)  # fmt: skip
@click.option(
    "--retry-failed",
    "failed_of",
    metavar="JOB",
    help="Run what failed of JOB again, as it was but for the options given, such as --mem.",
)
@click.argument(
    "words", nargs=-1, metavar="FILE|TEMPLATE...", type=click.UNPROCESSED,
    shell_complete=SPEC_FILE.shell_complete,
)  # fmt: skip
def map_(words: tuple[str, ...], failed_of: str | None, **options: Any) -> int:
    """Run the commands in FILE (`-`: stdin), one per line, as one job; or a TEMPLATE over values.

    A TEMPLATE runs once for each value behind `:::`, for each line of the file behind `::::`, or,
    where it has a `{}`, for each line of stdin. The value is put where `{}` stands, or at the end.
    `{.}` is the value without its extension, `{/}` its last part, `{//}` its folder, `{/.}` both,
    `{#}` its number from 1, as `--tag` prints it. Instances have numbers from 0.

    \b
    peloton map commands.txt --max-parallel 8
    peloton map gzip -9 {} ::: *.log
    seq 500 | peloton map --cpus 0.5 'python train.py --seed {}'
    peloton map --retry-failed JOB

    Options come before a TEMPLATE. At most 100,000 commands; where they have more than 1,200 bytes
    on average, and from 64 KiB on, long ones travel as files: at most 1,000. The outputs of each
    are printed when it has ended, and kept for that. Ctrl-C asks whether to stop the job or to
    detach; without a terminal it stops the job.

    With --results a folder N appears once it is complete. A DIR with results is refused, but for
    --retry-failed, which replaces those of what runs again: N is the number it had at first.

    \b
    Exits with
      0         all succeeded
      1         some failed
      74        all succeeded, and output is gone that was to be printed or written
      81        it can never run as the hosts are, and was stopped
      64 to 77  the command itself went wrong, see `peloton wait --help`
      125       the job was killed, by somebody else
      130       it was interrupted here, and stopped
    """
    check_options(words, failed_of, options=options)
    commands = [] if failed_of else read(words)
    settings = click.get_current_context().ensure_object(CliSettings)
    if len(commands) > MANY and not settings.values.get("timeout_s"):
        settings.values["timeout_s"] = MANY_TIMEOUT_S
    with batch.client(options) as peloton, pool_typed(options["pool"]):
        if failed_of:
            with typed_names((failed_of,)):
                failed_of = id_of(peloton, failed_of)
                spec, options["pool"] = failed_again(peloton, failed_of, options=options)
            options |= {"retried": failed_of, "files": batch.files_again(spec, failed_of)}
        else:
            spec = spec_of(peloton, commands, options=options)
        if options["dry_run"]:
            click.echo(as_yaml({"pool": options["pool"], **spec}), nl=False)
            return exits.OK
        return submitted(peloton, spec, options=options)


def check_options(words: Sequence[str], failed_of: str | None, *, options: Any) -> None:
    """Refuse options that exclude each other. Makes the folder of --results. Raises UsageError."""
    if bool(failed_of) == bool(words):
        raise click.UsageError("name a FILE, a TEMPLATE with ::: or ::::, or --retry-failed")
    kept = [name for name in KEPT if options[name]] if failed_of else []
    if kept:
        named = ", ".join("--" + name.replace("_", "-") for name in kept)
        raise click.UsageError(
            f"{named}: instances that run again keep their folder and environment"
        )
    if options["local"] and (options["detach"] or failed_of):
        raise click.UsageError("--local ends with this command: no --detach, no --retry-failed")
    if options["results"] and options["detach"]:
        raise click.UsageError("--results is written while commands end: no --detach")
    if options["results"] and not options["dry_run"]:
        results_folder(options["results"], replaces=bool(failed_of))


def read(words: Sequence[str]) -> list[str]:
    """Return the commands that were asked for; words before `:::` may have looked like a file."""
    try:
        template, mark, rest = parted(words)
        if template and batch.is_shell_text(template[0]):
            batch.refuse_misplaced(template[1:])
        if mark == VALUES:
            batch.refuse_misplaced(rest)
        if not mark:
            if has_place(words) and not Path(words[0]).is_file():
                return filled(words, lines_of("-"))  # as GNU parallel does: `seq 9 | … 'echo {}'`
            if len(words) > 1:
                raise BadCommands("give one FILE; put values of a template after `:::`")
            return commands_in(lines_of(words[0]))
        if mark == FILES and len(rest) != 1:
            raise BadCommands(f"give one file, or -, after {FILES}")
        return filled(template, lines_of(rest[0]) if mark == FILES else rest)
    except BadCommands as error:
        raise click.UsageError(str(error)) from None


def lines_of(name: str) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        # Not splitlines: it also cuts a command at form feeds and the like.
        lines = data.decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        text = f"{name}: there is no such file; put values of a template after `:::`"
        raise click.UsageError(text) from None
    except UnicodeDecodeError:
        raise BadSpec(f"{'stdin' if name == '-' else name}: no text in UTF-8") from None
    return [line for line in (each.removesuffix("\r") for each in lines) if line]


def spec_of(peloton: Client, commands: Sequence[str], *, options: dict[str, Any]) -> Any:
    """Return the job of these commands; what all have in common is in its default config."""
    name = commands[0].split()[0] if len(set(first_words(commands))) == 1 else NAME_DEFAULT
    here, count = batch.runs_here(peloton), len(commands)
    spec = batch.spec_of(peloton, options, name=Path(name).name, instances=count, here=here)
    folder = batch.folder_of(options["workdir"], here=here)
    long = long_ones(commands)
    options["files"] = {str(number): commands[number].encode() for number in long}
    if len(set(commands)) == 1 and not long:
        spec["defaultConfig"]["command"] = batch.shell_command(commands[0], options, folder=folder)
        return spec
    texts = [
        batch.file_command(str(number), b"") if number in long else text
        for number, text in enumerate(commands)
    ]
    spec["instanceConfig"] = {
        number: {"command": batch.shell_command(text, options, folder=folder)}
        for number, text in enumerate(texts)
    }
    return spec


def long_ones(commands: Sequence[str]) -> set[int]:
    """Return the numbers of the commands that travel as files.

    These are commands too long to be passed to a program, and, if some are too long together, all
    above the average that there is room for.
    """
    sizes = [len(text.encode()) for text in commands]
    together = max(sum(sizes[at : at + PAGE]) for at in range(0, len(sizes), PAGE))
    most = COMMAND_BYTES_MAX if together <= ROOM_BYTES else COMMAND_BYTES_MEAN
    return {number for number, size in enumerate(sizes) if size > most}


def first_words(commands: Iterable[str]) -> Iterable[str]:
    return (text.split(None, 1)[0] for text in commands)


def submitted(peloton: Client, spec: Any, *, options: dict[str, Any]) -> int:
    """Create the job and stay with it; return the exit code."""
    count = spec["instanceCount"]
    job = batch.create(peloton, spec, options=options)
    if options["detach"]:
        show(OutputForms({"job_id": job}, text=job, names=lambda: [job]))
        hint(f"next: {batch.next_steps(job)}")
        return exits.OK
    commands = "command" if count == 1 else "commands"
    hint(
        f"job {job}: {count} {commands}"
        + (f", as {spec['name']}" if options.get("retried") else "")
    )
    collected = [
        Collected(peloton, job, count=count, sink=sink, in_order=options["keep_order"])
        for sink in sinks(spec, options)
    ]
    waiting = WhyWaiting(peloton, job, waits_for_hosts=options["wait_for_hosts"])
    try:
        with peloton.outputs.held(job), progress(count) as shown:

            def look(ended: Any) -> None:
                over = ended_of(ended.counts)
                for one in collected:
                    if one.is_behind(over):
                        with shown.paused():
                            one.step(over)
                waiting.seen(ended, paused=shown.paused)
                shown.seen(ended.state, ended.counts)

            ended = attend.attend(
                peloton, job, seen=look, can_detach=not options["local"], asking=shown.paused
            )
            with shown.paused():
                for one in collected:
                    one.finish()
    except attend.Detached:
        return exits.OK
    except attend.StoppedHere:
        return exits.INTERRUPTED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            hint(f"job {job} was left; `{command('job', 'stop', job)}` ends it if it goes on")
        raise
    gone = max((one.missing for one in collected), default=0)
    if gone:
        hint(gone_text(gone, next(one.why for one in collected if one.why)))
    code = summary(peloton, job, ended=ended, local=options["local"])
    return exits.OUTPUT_GONE if gone and code == exits.OK else code


def sinks(spec: Any, options: dict[str, Any]) -> Iterator[Sink]:
    """Yield where the outputs go."""
    numbers = numbers_of(spec)
    if options["logs"] or (options["logs"] is None and not options["results"]):
        # As in GNU parallel, and as `{#}`, commands are counted from 1.
        yield Printed((lambda number: numbers(number) + 1) if options["tag"] else None)
    if options["results"]:
        folder = Path(options["results"]).expanduser()
        yield Results(folder, numbers, replaces=bool(options.get("retried")))


def summary(peloton: Client, job: str, *, ended: Any, local: bool) -> int:
    """Print what failed, and how to go on; return the exit code."""
    counts = ", ".join(f"{number} {state}" for state, number in sorted(ended.counts.items()))
    bad = sum(ended.counts.get(state, 0) for state in FAILED_STATES)
    output = click.get_current_context().ensure_object(CliSettings).output
    if output in ("json", "yaml"):
        answer = {"job_id": job, "state": ended.state, "counts": dict(sorted(ended.counts.items()))}
        show(OutputForms(answer))
    if bad:
        for line in failed_lines(peloton, job, states=FAILED_STATES, most=FAILED_SHOWN_MAX):
            hint(line)
        if bad > FAILED_SHOWN_MAX:
            hint(f"and {bad - FAILED_SHOWN_MAX} more")
    hint(f"job {job} {ended.state}: {counts}")
    if bad and not local:
        hint(f"next: {command('map', '--retry-failed', job)}")
    if ended.state == "SUCCEEDED":
        return exits.OK
    return exits.SOME_FAILED if ended.counts.get("FAILED") else exits.NO_EXIT_CODE
