"""The gate of texts: mentions in texts of actors, replaced by what the caller may see.

Mentions of jobs and pools (`peloton/actors/mentions.py`) in answers and statuses become their ids
and paths, or "another job" and "another pool". Configs, and whatever a client has written, stay
unchanged.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from peloton.actors.job.messages import GetJob, JobView
from peloton.actors.mentions import ANOTHER, JOB, said
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.translate.texts import known_job
from peloton.runtime.vocabulary import Key
from peloton.settings.permissions_file import Permission

ID_CHARS = 8
ASKED_MAX = 200
"""Jobs that are looked up for one answer; further ones are another's."""
ASK_S_MAX = 2.0
"""How long one answer waits for the owners of all the jobs that it mentions."""
TEXTS = frozenset(
    ("because", "cause", "change", "basis", "error", "message", "nobody_because", "proof", "reason",
     "skipped_because", "text")
)  # fmt: skip
"""Fields of answers in which actors speak to people; those of configs have other names."""
JOB_IDS = frozenset(("head_job",))
"""Fields with the id of a job that is another's, beside such a text."""
_MENTIONS = re.compile(rb"<(?:job|pool) ")


class ReaderSight:
    """What one caller may see, for one answer.

    `waits`: jobs of other daemons may be asked for; else what cannot be read at once counts as
    another's.
    """

    def __init__(
        self,
        cluster_client: ClusterClient,
        context: Context,
        *,
        waits: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster_client, self._context, self._clock = cluster_client, context, clock
        self._left_s = ASK_S_MAX if waits else 0.0
        self._rights = cluster_client.rights(context)
        self._at_pool = getattr(context, "at_pool", "")
        self._seen: dict[str, bool] = {}

    def told(self, text: str) -> str:
        """Return the text as the caller may read it."""
        return said(text, self._named)

    def sees_job(self, job_id: str) -> bool:
        """Return whether the job may be named to the caller."""
        if self._rights is None:
            return True
        if job_id not in self._seen:
            self._seen[job_id] = len(self._seen) < ASKED_MAX and self._may_see(known_job(job_id))
        return self._seen[job_id]

    def sees_pool(self, path: str) -> bool:
        """Return whether the pool may be named: also those above one that the caller has asked
        for."""
        if self._rights is None or self._rights.sees_pool(path):
            return True
        return f"{self._at_pool}/".startswith(f"{path}/") and bool(self._at_pool)

    # ---- inside ----

    def _named(self, kind: str, of: str) -> str:
        seen = self.sees_job(of) if kind == JOB else self.sees_pool(of)
        return f"{kind} {of}" if seen else ANOTHER[kind]

    def _may_see(self, key: Key | None) -> bool:
        assert self._rights is not None
        if key is None:
            return False
        # Not by `job`: a text leaves also where that job cannot be read.
        cluster = self._cluster_client.cluster
        view = cluster.read(key, GetJob())
        if view is None and self._left_s > 0:
            begun_s = self._clock()
            with contextlib.suppress(TimeoutError):
                view = self._context.await_answer(cluster.ask(key, GetJob()), self._left_s)
            self._left_s -= self._clock() - begun_s
        return isinstance(view, JobView) and self._rights.may_with_job(
            Permission.SEE, view.summary.pool_path, created_by=view.created_by
        )


class TextGate:
    """The gate that every answer of a server passes before it leaves."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def encoded(self, answer: Any, context: Context) -> bytes:
        """Return the answer of a method, on a thread that may wait."""
        data = bytes(answer.SerializeToString())
        if not self.concerns(data):
            return data
        _tell(answer, ReaderSight(self._cluster_client, context))
        return bytes(answer.SerializeToString())

    def at_once(self, data: bytes, context: Context, *, kind: type[Message]) -> bytes:
        """Return an answer that is encoded, on a thread that must not wait."""
        return self._again(
            data, kind, sight=ReaderSight(self._cluster_client, context, waits=False)
        )

    def concerns(self, data: bytes) -> bool:
        """Return whether an encoded answer may hold mentions.

        A message of a stream has to be passed through `message` then.
        """
        return _MENTIONS.search(data) is not None

    def message(self, data: bytes, context: Context, *, kind: type[Message]) -> bytes:
        """Return a message of a stream, on a thread that may wait."""
        return self._again(data, kind, sight=ReaderSight(self._cluster_client, context))

    def status(self, text: str, context: Context) -> str:
        """Return the text of a status, which may end a call anywhere, so without waiting."""
        if "<" not in text:
            return text
        return ReaderSight(self._cluster_client, context, waits=False).told(text)

    def _again(self, data: bytes, kind: type[Message], *, sight: ReaderSight) -> bytes:
        if not self.concerns(data):
            return data
        answer = kind.FromString(data)
        _tell(answer, sight)
        return answer.SerializeToString()


class JobNames:
    """The names of jobs with the beginnings of their ids, by which commands find them."""

    def __init__(self, cluster_client: ClusterClient, context: Context) -> None:
        self._cluster_client, self._context = cluster_client, context
        self._known: dict[str, str] = {}

    def in_text(self, text: str) -> str:
        """Return the text with names in place of mentions of existing jobs; others stay."""
        return said(text, self._named)

    def _named(self, kind: str, of: str) -> str:
        mention = f"<{kind} {of}>"
        if kind != JOB:
            return mention
        if of not in self._known:
            if len(self._known) >= ASKED_MAX:
                return mention
            view = self._cluster_client.job(known_job(of), self._context)
            name = view.spec.name if view is not None else ""
            self._known[of] = f"{name} ({of[:ID_CHARS]})" if name else mention
        return self._known[of]


# ---- the fields of a message ----


class _Way(NamedTuple):
    """A field that holds a text, or messages that may."""

    field: FieldDescriptor
    is_map: bool


@cache
def _ways(described: Descriptor) -> tuple[_Way, ...]:
    """Return the fields of a type that lead to texts."""
    return tuple(
        _Way(field, _is_map(field)) for field in described.fields if _leads(field, frozenset())
    )


def _leads(field: FieldDescriptor, above: frozenset[str]) -> bool:
    kind = field.message_type
    if kind is None:
        return field.type == FieldDescriptor.TYPE_STRING and field.name in TEXTS | JOB_IDS
    if kind.full_name in above:
        return False  # it leads there by another field, or not at all
    return any(_leads(each, above | {kind.full_name}) for each in kind.fields)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _tell(message: Message, sight: ReaderSight) -> None:
    """Replace all texts of a message by what the caller may read."""
    for field, is_map in _ways(message.DESCRIPTOR):
        if field.message_type is None:
            _tell_text(message, field, sight=sight)
            continue
        for each in _messages(message, field, is_map=is_map):
            _tell(each, sight)


def _tell_text(message: Message, field: FieldDescriptor, *, sight: ReaderSight) -> None:
    value = getattr(message, field.name)
    if field.is_repeated:
        value[:] = [sight.told(each) for each in value]
    elif not value:
        return
    elif field.name in JOB_IDS:
        if not sight.sees_job(value):
            message.ClearField(field.name)
    else:
        setattr(message, field.name, sight.told(value))


def _messages(message: Message, field: FieldDescriptor, *, is_map: bool) -> Iterator[Message]:
    value = getattr(message, field.name)
    if is_map:
        yield from value.values()
    elif field.is_repeated:
        yield from value
    elif message.HasField(field.name):
        yield value
