"""`peloton journal`: reads a journal without owning it, while its cluster runs or is stopped.

Turns a data folder, or the keyspace that a daemon's config names, into lines for a person or a
script. Nothing is claimed, created or changed: the journal may have owners. Exit codes: 0, or 1 if
something is damaged, 64 for a wrong option, 66 if there is no journal that this version reads, 69
for a store that cannot be reached.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peloton.commands.schema import CANNOT_REACH, USAGE, WRONG, fail
from peloton.printable import escaped
from peloton.settings.config import BadSetting

if TYPE_CHECKING:
    from peloton.assembly.journal_reader import JournalReader

NO_JOURNAL = 66
JournalCommand = TypeVar("JournalCommand", bound=Callable[..., Any])


def command() -> click.Group:
    return journal


@click.group()
def journal() -> None:
    """Read a journal without owning it: of a running cluster, or of one that is stopped."""


def of_the_journal(command_: JournalCommand) -> JournalCommand:
    """Add the options that select a journal and a part of it."""
    for option in reversed(
        [
            click.option(
                "--data-dir", type=click.Path(file_okay=False, path_type=Path),
                help="A data folder.  [default: that of the minicluster]",
            ),
            click.option(
                "--config", "config_", type=click.Path(dir_okay=False, path_type=Path),
                help="A daemon's YAML file: the journal that it names.",
            ),
            click.option(
                "--shard", "shards", multiple=True, metavar="GROUP-NUMBER",
                help="Read only this shard, such as jobmgr-3 or jobmgr/3; repeatable.",
            ),
        ]
    ):  # fmt: skip
        command_ = option(command_)
    return command_


@journal.command()
@of_the_journal
@click.option(
    "--key", metavar="KEY", help="Read only this actor, such as job/ID or task/JOB/INSTANCE."
)
@click.option("--from", "start", type=int, default=0, metavar="POSITION", help="Begin at it.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="LINES", help="Print at most this many."
)
@click.option("--states", is_flag=True, help="Print the states of actors, not their facts.")
def dump(key: str | None, start: int, limit: int | None, states: bool, **where: Any) -> None:
    """Print the entries of frames as JSON, one a line, oldest first.

    \b
    peloton journal dump --shard jobmgr-3 --from 1200 --limit 20
    peloton journal dump --key job/6f1f0a1e-7d0b-4b3e-9f0e-0c8d1d9b7c11

    Frames from before the last checkpoint are printed as far as they are still there. What this
    version does not know, such as a fact of a later one, is printed as it is stored.
    """
    with _opened("dump", where) as reader:
        found = reader.states(key) if states else reader.lines(key, start=start)
        line = None
        for line in islice(found, limit):
            click.echo(json.dumps(line, ensure_ascii=False))
        if line is None:
            click.echo("peloton journal dump: nothing found", err=True)


@journal.command()
@of_the_journal
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object a line, with all counts."
)
def stat(as_json: bool, **where: Any) -> None:
    """Print the size of each shard, and the number of each class of fact in its frames."""
    with _opened("stat", where) as reader:
        if reader.cluster and not as_json:
            click.echo(f"cluster {reader.cluster}")
        for found in reader.figures():
            click.echo(json.dumps(found) if as_json else figures_text(found))


@journal.command()
@of_the_journal
def check(**where: Any) -> None:
    """Check that every shard can be recovered; exit with 1 if something is wrong.

    Registers, hash chains and the parts of checkpoints are verified, every frame is decoded, and
    each shard is recovered once, in memory. Final states of ended actors are decoded too where the
    journal is in a data folder; Cassandra finds those by their key only. A journal in a data
    folder is compared with its witness, too: what was acknowledged and is missing is named.
    """
    wrong = 0
    with _opened("check", where) as reader:
        for shard, findings in reader.findings():
            for finding in findings:
                click.echo(escaped(f"wrong   {finding}"))
            if not findings:
                click.echo(f"ok      {shard}")
            wrong += len(findings)
    if wrong:
        sys.exit(WRONG)


@contextmanager
def _opened(name: str, where: dict[str, Any]) -> Iterator[JournalReader]:
    """Open the journal of the options; end the command with one line if it cannot be read."""
    # Heavy imports wait until there is something to read.
    from peloton.assembly.journal_reader import JournalReader, open_source

    with failing(f"journal {name}"):
        source = open_source(where["data_dir"], where["config_"])
        with closing(JournalReader(source, where["shards"])) as reader:
            for note in reader.notes:
                click.echo(f"peloton journal {name}: {note}", err=True)
            yield reader


@contextmanager
def failing(command_: str) -> Iterator[None]:
    """End the command with one line and a code if settings or a journal cannot be read."""
    from peloton.runtime.ports import JournalError, JournalRefused, Unreachable

    try:
        yield
    except BadSetting as error:
        fail(command_, error, code=USAGE)
    except Unreachable as error:
        fail(command_, error, code=CANNOT_REACH)
    except JournalRefused as error:
        fail(command_, error, code=NO_JOURNAL)
    except JournalError as error:
        fail(command_, error, code=WRONG)


def figures_text(found: dict[str, Any]) -> str:
    """Return figures as a paragraph."""
    ended = f", ended {found['ended_rows']} rows" if "ended_rows" in found else ""
    lines = [
        f"{found['shard']}  epoch {found['epoch']}, position {found['last_position']}, "
        f"floor {found['floor']}",
        f"    frames {found['frames']} of {found['frame_bytes']} bytes, after the floor "
        f"{found['tail_frames']} of {found['tail_bytes']}",
        f"    checkpoint {found['checkpoint_parts']} parts of {found['checkpoint_bytes']} bytes"
        + ended,
        *(f"    {count:8} {fact}" for fact, count in found["facts"].items()),
    ]
    return "\n".join(lines)
