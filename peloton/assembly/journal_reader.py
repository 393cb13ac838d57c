"""A journal of this program's kinds, opened without owning it, for `peloton journal`.

Turns a data folder or a daemon's config into lines, figures and findings, shard by shard. Nothing
is claimed or written: the shards may have owners. A shard that is damaged in the store's own files
is a finding of that shard. A group of an extension that is not installed here is read as it is
stored: nothing in it is decoded or recovered, and a note says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from peloton.actors.host.ledger import names_of, run_names
from peloton.actors.host.state import occupying_runs
from peloton.actors.task.messages import SLICE_SIZE
from peloton.actors.task.state import ON_HOST
from peloton.assembly.extensions import extensions
from peloton.assembly.kinds import kinds
from peloton.assembly.servers import open_cassandra
from peloton.failures import CannotStart
from peloton.runtime.adapters.fenced_rows import NO_RECORD, read_record, run_once
from peloton.runtime.adapters.sqlite_reading import SqliteRows
from peloton.runtime.adapters.witness_file import read_witness
from peloton.runtime.core.offline import journal_dump, journal_reading
from peloton.runtime.core.offline.journal_check import Rehearsal
from peloton.runtime.core.offline.journal_dump import Line
from peloton.runtime.core.offline.journal_reading import Contents, Finding
from peloton.runtime.core.offline.witness import Witness, WitnessDamaged, differences
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import (
    ClusterRecord,
    Damaged,
    EndedRow,
    JournalRefused,
    ShardId,
    Unclear,
    Unreachable,
)
from peloton.runtime.vocabulary import Key
from peloton.settings.config import BadSetting, default_data_dir
from peloton.settings.daemon import ALONE_SHARDS, read_settings

KINDS_OF_JOBS = ("job", "slice", "task", "lot")
"""Kinds whose keys begin with the id of a job."""
INSTANCE_DIGITS_MAX = 10


class Source(NamedTuple):
    """A journal's rows, and the operations that only some stores have.

    `ended` lists the final states of a shard; `snapshot` reads as of one moment; `wrong` returns
    what the store finds wrong with its files; `folder` may have a witness of the journal.
    """

    rows: Any
    ended: Callable[[ShardId], Iterable[EndedRow]] | None = None
    snapshot: Callable[[Callable[[], Any]], Any] = lambda read: read()
    wrong: Callable[[], list[str]] = list
    folder: Path | None = None


def open_source(folder: Path | None, config: Path | None) -> Source:
    """Open a data folder, or a config's journal. Raises BadSetting, JournalError."""
    if folder is not None and config is not None:
        raise BadSetting("give one of --data-dir and --config")
    if config is not None:
        setting = read_settings(config).journal
        if setting.cassandra is not None:
            try:
                shared: Any = open_cassandra(setting.cassandra)
            except CannotStart as error:
                raise Unreachable(str(error)) from error
            return Source(shared.rows)
        assert setting.sqlite is not None
        folder = setting.sqlite.folder
    folder = folder or default_data_dir()
    rows = SqliteRows(folder)
    return Source(rows, rows.ended, rows.snapshot, rows.wrong, folder)


def runs_on_hosts(folder: Path, *, report: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """Yield the runs that the journal in a data folder has on hosts, with the hosts' names.

    A damaged shard, which has no owner and starts nothing, is reported.
    """
    with closing(JournalReader(open_source(folder, None))) as reader:
        for shard in reader.shards:
            try:
                yield from reader.runs(shard)
            except Damaged as error:
                report(f"warning: {error}; see peloton journal check")


class JournalReader:
    """Reads the shards of a journal; of those named, or of all."""

    def __init__(self, source: Source, names: Iterable[str] = ()) -> None:
        self._source = source
        try:
            record = self._record()
            self._cluster_id = record.cluster_id
            self.cluster = record.name
            """The cluster's name; empty in a journal that was never given one."""
            self.shards = chosen(record.shards, [*names])
        except BaseException:
            source.rows.close()
            raise
        # A journal may be without a group that this program has: none of its keys are in it.
        ours = kinds({**ALONE_SHARDS, **record.shards})
        self.notes = list[str]()
        """What of the journal cannot be read here, and why."""
        self._rehearsal = Rehearsal({**ours, **self._installed()}, record.shards)
        self._unread = {*record.shards} - self._rehearsal.groups
        if not self._unread.isdisjoint(shard.group for shard in self.shards):
            text = "their extensions are not installed here, so nothing in them is decoded"
            self.notes.append(f"groups {', '.join(sorted(self._unread))}: {text}")
        self._with_runs = {ours[name].group for name in ("host", "task")}

    def _installed(self) -> Mapping[str, Kind]:
        """Return the kinds of extensions; one that cannot be used must not hide the rest."""
        try:
            return extensions().kinds
        except CannotStart as error:
            self.notes.append(str(error))
            return {}

    def close(self) -> None:
        self._source.rows.close()

    def read(self, shard: ShardId) -> Contents:
        """Return the content of a shard. Raises Unreachable, Damaged."""
        found: Contents = self._source.snapshot(lambda: self._read(shard))
        return found

    def _read(self, shard: ShardId) -> Contents:
        found = run_once(self._source.rows.run, journal_reading.read_shard(shard))
        assert not isinstance(found, Unclear), "it raises what it cannot read"
        if found is None:
            raise Damaged("the cluster record names the shard, and it has no register")
        return found

    def recovered(self, shard: ShardId) -> Any:
        """Return the shard as its next owner would have it. Also raises what stops recovery."""
        return self._rehearsal.recovered(self.read(shard))

    # ---- what is printed ----

    def lines(self, key: str | None = None, *, start: int = 0) -> Iterator[Line]:
        """Yield entries of frames; of one actor if a key is given."""
        wanted, member = addressed(key)
        for shard in self._homes(wanted):
            for line in journal_dump.lines(self.read(shard), self._rehearsal.codec, start=start):
                if journal_dump.concerns(line, wanted, member=member):
                    yield line

    def states(self, key: str | None = None) -> Iterator[Line]:
        """Yield the actors as recovery finds them. Raises Damaged if it does not."""
        wanted, member = addressed(key)
        for shard in self._homes(wanted):
            if shard.group in self._unread:
                continue
            contents = self.read(shard)
            findings = self._rehearsal.check(contents)
            if findings:
                raise Damaged(str(findings[0]))
            for line in journal_dump.states(self._rehearsal.recovered(contents)):
                if journal_dump.concerns(line, wanted, member=member):
                    yield line

    def runs(self, shard: ShardId) -> Iterator[tuple[str, str]]:
        """Yield every run that a shard has on a host, and the host's name. Raises Damaged.

        Runs whose orders were not received yet are among them.
        """
        if shard.group not in self._with_runs:
            return
        contents = self.read(shard)
        findings = self._rehearsal.check(contents)
        if findings:
            raise Damaged(str(findings[0]))
        population = self._rehearsal.recovered(contents).population
        for key in sorted(population.cells):
            if key.startswith("host/"):
                for run in run_names(occupying_runs(population.cells.peek(key))):
                    yield run, _name(key)
        for key in sorted(population.crowds):
            if key.startswith("task/"):
                crowd = population.crowds.peek(key)
                for state, part in crowd.split(crowd.where(lambda task: task.state in ON_HOST)):
                    for host, members in crowd.columns.groups("host", part):
                        for run_id in names_of(key, members, run=state.run):
                            yield run_id, _name(host)

    def figures(self) -> Iterator[Line]:
        """Yield the size of each shard."""
        for shard in self.shards:
            found = journal_dump.figures(self.read(shard), self._rehearsal.codec)
            if self._source.ended is not None:
                sizes = [len(row.body) for row in self._source.ended(shard)]
                found |= {"ended_rows": len(sizes), "ended_bytes": sum(sizes)}
            yield found | {"cluster": self.cluster}

    def findings(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield each shard by its name, and all that is wrong with it. Raises Unreachable.

        The journal as a whole comes first, if something is wrong with that.
        """
        # Before the shards: of a running cluster they may be ahead of it, and never behind.
        witness, texts = self._witness()
        texts += self._source.wrong()
        if texts:
            yield "journal", texts
        for shard in self.shards:
            try:
                contents = self.read(shard)
                read = shard.group not in self._unread
                found = self._rehearsal.check(contents) if read else [*contents.findings]
                chains = {frame.position: frame.chain for frame in contents.frames}
                lost = differences(witness, contents.register, of=(shard, chains))
                found += [Finding(shard, f"behind its witness: {one.text}") for one in lost]
                if read and self._source.ended is not None:
                    found += self._rehearsal.ended(shard, self._source.ended(shard))
            except Damaged as error:
                found = [Finding(shard, str(error))]
            yield journal_dump.name_of(shard), found

    # ---- inside ----

    def _witness(self) -> tuple[Witness | None, list[str]]:
        """Return what the journal must have, and what is wrong with that itself."""
        if self._source.folder is None:
            return None, []
        try:
            witness = read_witness(self._source.folder)
        except WitnessDamaged as error:
            return None, [f"the witness is damaged: {error}"]
        except OSError as error:
            return None, [f"the witness cannot be read: {error.strerror}"]
        if witness is not None and witness.header.cluster_id != self._cluster_id:
            return None, ["the witness is of another cluster"]
        return witness, []

    def _record(self) -> ClusterRecord:
        record = read_record(self._source.rows)
        if record is None:
            raise JournalRefused(NO_RECORD)
        return record

    def _homes(self, key: str | None) -> list[ShardId]:
        """Return where entries of the key can be; all shards if its kind is not known here."""
        home = self._rehearsal.home(Key(key)) if key is not None else None
        return [shard for shard in self.shards if home in (None, shard)]


def chosen(shards: dict[str, int], names: list[str]) -> list[ShardId]:
    """Return the shards of these names, or all. Raises BadSetting."""
    every = [ShardId(group, at) for group in sorted(shards) for at in range(shards[group])]
    known = {journal_dump.name_of(shard): shard for shard in every}
    # Other commands and logs write jobmgr/3.
    names = [name.replace("/", "-") for name in names]
    for name in names:
        if name not in known:
            there = ", ".join(
                f"{g}-0 to {g}-{shards[g] - 1}" if shards[g] > 1 else f"{g}-0"
                for g in sorted(shards)
            )
            raise BadSetting(f"--shard: there is no {name!r}; there are {there}")
    return [known[name] for name in dict.fromkeys(names)] if names else every


def addressed(key: str | None) -> tuple[str | None, int | None]:
    """Return the key as a journal has it; a task is named by its instance and stored in a crowd."""
    if key is None:
        return None, None
    kind, _, name = key.partition("/")
    if not (kind and name):
        raise BadSetting(f"--key: {key!r} is not KIND/NAME, such as job/ID or host/NAME")
    if kind not in KINDS_OF_JOBS:
        return key, None
    job, _, rest = name.partition("/")
    try:
        job = str(uuid.UUID(job))
    except ValueError:
        raise BadSetting(f"--key: {key!r}: {job!r} is not the id of a job, a UUID") from None
    if kind != "task":
        return f"{kind}/{job}" + (f"/{rest}" if rest else ""), None
    if not (rest.isascii() and rest.isdigit() and len(rest) <= INSTANCE_DIGITS_MAX):
        raise BadSetting(f"--key: {key!r} is not task/JOB/INSTANCE")
    number, member = divmod(int(rest), SLICE_SIZE)
    return f"task/{job}/{number}", member


def _name(host: str) -> str:
    return host.partition("/")[2]
