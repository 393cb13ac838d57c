"""`peloton run`: one command as a job, as if it had been typed here.

The output and the exit code of the job become those of this command. Neither a file nor a pool has
to be made before.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.jobs import attend, batch
from peloton.cli.jobs.ops import ended_answer
from peloton.cli.shared import exits
from peloton.cli.shared.options import CliSettings
from peloton.cli.shared.output import OutputForms, as_yaml, command, hint, show
from peloton.cli.shared.session import pool_typed
from peloton.cli.shared.values import SPEC_FILE
from peloton.cli.texts.task_texts import ended_of

if TYPE_CHECKING:
    from peloton.sdk.client import Client


class RunCommand(batch.BatchCommand):
    """A command that may end with any exit code of its job, so that all own failures have one
    code."""

    def make_context(self, *args: Any, parent: click.Context | None = None, **rest: Any) -> Any:
        if parent is not None:
            parent.ensure_object(CliSettings).own_failure = exits.NO_EXIT_CODE
        return super().make_context(*args, parent=parent, **rest)


@click.command(cls=RunCommand)
@batch.batch_options
@click.option(
    "--instances", "-n", type=click.IntRange(1, batch.INSTANCES_MAX), default=1, show_default=True,
    help="Run this many instances; PELOTON_INSTANCE_ID holds the number of each.",
)  # fmt: skip
@click.option(
    "--raw-exit",
    is_flag=True,
    help="With several instances, return the real exit code even if it is above 62.",
)
@click.option(
    "--script", type=SPEC_FILE, metavar="FILE",
    help="Run this script (`-`: stdin), by its first line or with the shell; put its arguments "
    "after `--`. At most 4 MB.",
)  # fmt: skip
@click.argument("words", nargs=-1, metavar="-- COMMAND...", type=click.UNPROCESSED)
def run(words: tuple[str, ...], instances: int, script: str | None, **options: Any) -> int:
    """Run COMMAND as a job: its output is printed as it comes, its exit code is handed on.

    One word is a text for the shell, several are the program and its arguments. Ctrl-C asks
    whether to stop the job or to detach; without a terminal it stops the job. Of several instances
    each is printed when it has ended, its lines behind its number. While none has begun, stderr is
    told why: a terminal soon, all else each minute; what can never run is stopped, and is an
    error. The command's stdin is empty: pass input in a file or a variable.

    \b
    peloton run -- python train.py --seed 1
    peloton run --cpus 2 --mem 4g --retries 2 -- make test
    peloton run -n 4 'echo I am $PELOTON_INSTANCE_ID'
    peloton run --local -- ./once.sh
    peloton run --script train.sh -- --seed 1

    \b
    Exits with the code of the command (128 + the number of the signal that ended it), of several
    instances as `peloton wait` does (see its help), and with
      125   the command has no code: it was killed by somebody else, could not be started, or
            something else went wrong, which stderr says; or it can never run as the hosts
            are; or output is gone that was to be printed
      130   it was interrupted here, and stopped
    """
    if options["local"] and options["detach"]:
        raise click.UsageError("--local ends with this command, so there is nothing to detach from")
    text, name = of_script(script, words, options=options) if script else of_words(words)
    with batch.client(options) as peloton, pool_typed(options["pool"]):
        here = batch.runs_here(peloton)
        spec = batch.spec_of(peloton, options, name=name, instances=instances, here=here)
        spec["defaultConfig"]["command"] = batch.shell_command(
            text, options, folder=batch.folder_of(options["workdir"], here=here)
        )
        if options["dry_run"]:
            click.echo(as_yaml({"pool": options["pool"], **spec}), nl=False)
            return exits.OK
        return submitted(peloton, spec, options=options)


def of_words(words: tuple[str, ...]) -> tuple[str, str]:
    """Return the shell's text, and the name of its program. Raises UsageError."""
    if not words:
        raise click.UsageError("there is no command, and no --script")
    if batch.is_shell_text(words[0]):
        batch.refuse_misplaced(words[1:])
    text = words[0] if len(words) == 1 else shlex.join(words)
    if not text.strip():
        raise click.UsageError("the command is empty")
    return text, Path(shlex.split(text)[0] if len(words) > 1 else text.split()[0]).name


def of_script(file: str, arguments: tuple[str, ...], *, options: Any) -> tuple[str, str]:
    """Return the shell's text and the name for a file, which travels with the job."""
    data = batch.script_of(file)
    options["files"] = {batch.SCRIPT: data}
    name = batch.SCRIPT if file == "-" else Path(file).name
    return batch.file_command(batch.SCRIPT, data, arguments=arguments), name


def submitted(peloton: Client, spec: Any, *, options: Any) -> int:
    """Create the job and stay with it; return the exit code."""
    job = batch.create(peloton, spec, options=options)
    if options["detach"]:
        show(OutputForms({"job_id": job}, text=job, names=lambda: [job]))
        hint(f"next: {batch.next_steps(job)}")
        return exits.OK
    try:
        ended, gone = followed(peloton, job, instances=spec["instanceCount"], options=options)
    except attend.Detached:
        return exits.OK
    except attend.StoppedHere:
        return exits.INTERRUPTED
    if click.get_current_context().ensure_object(CliSettings).output in ("json", "yaml"):
        show(OutputForms(ended_answer(job, ended)))
    elif ended.state != "SUCCEEDED":
        explain(peloton, job, ended=ended, local=options["local"])
    if gone:
        hint(gone)
    if spec["instanceCount"] == 1:
        code = exits.of_run(ended)
    else:
        code = exits.of_job(ended, raw=options["raw_exit"])
    return exits.NO_EXIT_CODE if gone and code == exits.OK else code


def followed(peloton: Client, job: str, *, instances: int, options: Any) -> tuple[Any, str]:
    """Return the end of the job, and text about output that is gone."""
    from peloton.cli.jobs.waiting import WhyWaiting
    from peloton.cli.texts.outputs import Collected, Live, Printed, gone_text

    waiting = WhyWaiting(peloton, job, waits_for_hosts=options["wait_for_hosts"])
    can_detach = not options["local"]
    with peloton.outputs.held(job):
        if instances == 1:
            with Live(peloton, job) as live:
                ended = attend.attend(peloton, job, seen=waiting.seen, can_detach=can_detach)
            return ended, gone_text(1, live.gone) if live.gone else ""
        collected = Collected(peloton, job, count=instances, sink=Printed(str))

        def look(seen: Any) -> None:
            waiting.seen(seen)
            over = ended_of(seen.counts)
            if collected.is_behind(over):
                collected.step(over)

        ended = attend.attend(peloton, job, seen=look, can_detach=can_detach)
        collected.finish()
    return ended, gone_text(collected.missing, collected.why) if collected.missing else ""


def explain(peloton: Client, job: str, *, ended: Any, local: bool) -> None:
    """Print one line about what went wrong: an exit code alone does not tell who was at fault."""
    reasons = peloton.ops.why(job).reasons[:3]
    texts = [one.text for one in reasons if one.state not in ("SUCCEEDED", "RUNNING")]
    for text in dict.fromkeys(texts):
        # What stopped the job is the reason of its instances, too.
        if not any(text != other and text.endswith(other) for other in texts):
            hint(f"job {job} {ended.state}: {text}")
    if not local:
        hint(f"next: {command('why', job)}")
