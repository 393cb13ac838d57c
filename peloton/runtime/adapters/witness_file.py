"""The file of a journal's witness (`core/offline/witness.py`), written after each commit.

A record is written to the page cache before the commit is answered, and synced soon after by a
thread of its own; it costs a commit no second sync. So a record survives every end of the process,
and all that is done to the journal's own files. After a power cut it may be up to SYNC_EVERY_S
older than the journal, which has been synced: then it proves that much less, and never too much.

The file lies in a folder of its own: what replaces, restores or removes `journal.sqlite*` leaves
it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from peloton.runtime.adapters import claimed_folder, private_folder
from peloton.runtime.core.offline import witness as records
from peloton.runtime.core.offline.witness import Header, Known, Witness
from peloton.runtime.ports import ShardId

FOLDER, NAME = claimed_folder.WITNESS, "positions"
SYNC_EVERY_S = 0.25


def read_witness(folder: Path) -> Witness | None:
    """Read the witness in a data folder, None if there is none. Raises WitnessDamaged, OSError."""
    try:
        data = (folder / FOLDER / NAME).read_bytes()
    except FileNotFoundError:
        return None
    return records.unpack(data)


def remove(folder: Path) -> None:
    """Remove the witness of this data folder. Raises OSError."""
    (folder / FOLDER / NAME).unlink(missing_ok=True)


class WitnessFile:
    """The witness of a running journal, written anew as a whole when the journal is opened."""

    def __init__(self, folder: Path, witness: Witness) -> None:
        self._path = folder / FOLDER / NAME
        self._path.parent.mkdir(mode=private_folder.FOLDER_MODE, exist_ok=True)
        self._header, self._known = witness.header, dict(witness.known)
        shards = [ShardId(*name) for name in self._header.shards]
        self._numbers = {shard: at for at, shard in enumerate(shards)}
        self._names = {shard: records.name_of(self._header, shard) for shard in shards}
        self._sequences = dict.fromkeys(self._numbers, 1)
        self._start = len(records.pack_header(self._header))
        self._failed: OSError | None = None
        self._image = bytearray(records.pack(witness))
        self._descriptor = _replace(self._path, bytes(self._image))
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="witness", daemon=True)
        self._thread.start()

    @property
    def generation(self) -> int:
        """How often a rollback of the journal was accepted."""
        return self._header.generation

    def note(self, known: Mapping[ShardId, Known]) -> None:
        """Record these commits. Raises OSError: then none of them may be acknowledged."""
        if self._failed is not None:
            raise self._failed
        count, image = len(self._numbers), self._image
        spans: dict[int, tuple[int, int]] = {}
        for shard, values in known.items():
            sequence = self._sequences[shard] = self._sequences[shard] + 1
            data = records.record(self._names[shard], sequence=sequence, known=values)
            at = records.offset(self._start, count, at=self._numbers[shard], sequence=sequence)
            end = at + len(data)
            image[at:end] = data
            first, last = spans.get(sequence % 2, (at, end))
            spans[sequence % 2] = min(first, at), max(last, end)
        self._known.update(known)
        # One call for all shards of a round: the file system has its own work with each.
        for first, last in spans.values():
            if os.pwrite(self._descriptor, image[first:last], first) != last - first:
                raise OSError(f"{self._path}: it was written in part")
        self._dirty.set()

    def close(self, *, clean: bool) -> None:
        """End the thread. `clean`: the journal's log was moved into its file, and is not needed."""
        self._closing.set()
        self._dirty.set()
        self._thread.join()
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):  # not synced, it only proves less
            os.fdatasync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        if clean:
            old = self._header
            header = Header(old.cluster_id, old.generation, True, old.shards)
            os.close(_replace(self._path, records.pack(Witness(header, self._known))))

    def _loop(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._dirty.clear()
            if self._closing.is_set():
                return
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._failed = error  # the next commit stops the process
            self._closing.wait(SYNC_EVERY_S)


def _replace(path: Path, data: bytes) -> int:
    """Write the whole file, atomically also in a crash; return its descriptor."""
    draft = path.with_name(f"{path.name}.new")
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(draft, flags, private_folder.FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
        draft.replace(path)
        for folder in (path.parent, path.parent.parent):
            private_folder.sync(folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
