"""JobManager.Create: the request is validated completely before any command is sent.

A CreateRequest becomes one command, or pieces and a last command if the instances' own configs are
too large for one message. Refusals are inside the answer, in the original's order: id, pool,
config. An invalid request leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from peloton.actors.job.messages import (
    AddOverrides,
    CreateJob,
    GetJob,
    JobCreated,
    JobView,
    job_key,
)
from peloton.actors.job.workflow.messages import WorkflowOptions
from peloton.actors.resources import BadAmount
from peloton.actors.respool.messages import ROOT, GetPool, PoolView, pool_key
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.requests import RequestId, made_id, request_of
from peloton.gateway.server.calls import Later
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.host_abilities import refuse_commands_in_images, refuse_uris
from peloton.gateway.translate.job_labels import NOTIFY
from peloton.gateway.translate.run_as import NotPermitted, run_as
from peloton.gateway.translate.texts import canonical
from peloton.gateway.translate.translate_job import ParsedJob, to_spec
from peloton.gateway.translate.translate_task import SecretVolume
from peloton.gateway.v0.job_secrets import NO_VOLUMES, SecretsOfCall, masked
from peloton.gateway.v0.job_waits import OthersFirst, sees_job
from peloton.gateway.v0.pool_limits import warn_of_limits
from peloton.runtime.job_files import NO_FILES_OF, NoFilesOfOther, OtherFiles, problem_of
from peloton.runtime.vocabulary import Key, Refused

WHOLE_BYTES_MAX = 2 * 1024 * 1024
"""Own configs that may travel with the command itself; larger ones are sent slice by slice."""

NO_FILES = (
    "this daemon is not beside the hosts, which may be other machines: files of jobs do not get "
    "there yet"
)
NO_POOL_NAMED = "resource pool ID is null"
ROOT_NAMED = "cannot submit jobs to the `root` resource pool"
UNKNOWN_POOL = "resource pool not found"
POOL_OF_POOLS = "cannot submit jobs to a non leaf resource pool"

Error = job.CreateResponse.Error


class FilesOfCall:
    """The files that come with a job, or are those of another one; without any it does nothing."""

    def __init__(
        self, cluster_client: ClusterClient, sent: job.CreateRequest, *, context: Context
    ) -> None:
        self._cluster_client = cluster_client
        self._store = cluster_client.files
        self._files = dict(sent.files)
        self._of = sent.filesOf.value
        self._field = "filesOf" if self._of else "files"
        self._context = context
        self._made = ""

    def end_unless_good(self) -> None:
        """End the call if there can be no such files."""
        if not self._files and not self._of:
            return
        why = problem_of(self._files)
        if self._store is None:
            why = NO_FILES
        elif self._files and self._of:
            why = "a job with files has none of another job"
        elif self._of and canonical(self._of) is None:
            why = f"{self._of[:100]!r} is not the id of a job"
        if why:
            end(self._context, Code.INVALID_ARGUMENT, text=why, field=self._field)

    def store(self, job_id: str) -> None:
        """Store the files, before the job exists; end the call if that cannot be done.

        An existing job keeps its own files: no call replaces them.
        """
        if self._store is None or not (self._files or self._of):
            return
        known = self._cluster_client.ask(job_key(job_id), GetJob(), context=self._context)
        if isinstance(known, JobView):
            return
        try:
            if self._of:
                other = self._of.lower()
                if not sees_job(self._cluster_client, job_key(other), context=self._context):
                    raise NoFilesOfOther(NO_FILES_OF.format(job=other))
                made = self._store.share(job_id, other)
            else:
                made = self._store.put(job_id, self._files)
            self._made = job_id if made else ""
        except NoFilesOfOther as error:
            end(self._context, Code.NOT_FOUND, text=str(error), field="filesOf")
        except OtherFiles as error:
            end(self._context, Code.ALREADY_EXISTS, text=str(error), field=self._field)
        except OSError as error:
            text = f"they cannot be stored: {error.strerror}"
            end(self._context, Code.UNAVAILABLE, text=text, field=self._field)

    def withdraw(self) -> None:
        """Delete the files, because there is no such job."""
        if self._made and self._store is not None:
            with contextlib.suppress(OSError):  # the sweep finds them
                self._store.remove(self._made)


class CreationWorkflow(NamedTuple):
    """How the instances of a service are added, and the client's data of that."""

    options: WorkflowOptions
    opaque: str


class Creation:
    """One Create call.

    `path_of`: the client's name of a field of the request. `by`: the workflow that adds the
    instances; without one they all begin at once.
    """

    def __init__(
        self,
        cluster_client: ClusterClient,
        sent: job.CreateRequest,
        *,
        context: Context,
        path_of: Callable[[str], str] = str,
        by: CreationWorkflow | None = None,
    ) -> None:
        self._cluster_client = cluster_client
        self._sent = sent
        self._context = context
        self._path_of = path_of
        self._by = by
        self._request: RequestId | None = request_of(masked(sent, cluster_client.secrets), context)
        self._secrets = SecretsOfCall(cluster_client, context)
        self._files = FilesOfCall(cluster_client, sent, context=context)
        self._id = ""
        self._drawn = not sent.id.value and self._request is None

    def answer(self) -> job.CreateResponse:
        """Create the job; return the answer to the client."""
        refused = self._named()
        if refused is not None:
            return refused
        parsed = self._parsed(self._cluster_client.pool(self._pool_query(), self._context))
        return parsed if isinstance(parsed, job.CreateResponse) else self._create(*parsed)

    def misplaced(self) -> job.CreateResponse | None:
        """Return the refusal of its id or its pool, if one of them is wrong."""
        refused = self._named()
        if refused is not None:
            return refused
        found = self._pools(self._cluster_client.pool(self._pool_query(), self._context))
        return self._invalid(found) if isinstance(found, str) else None

    def wanted(self) -> tuple[ParsedJob, PoolView] | str:
        """Return what would be created, or why it cannot be: for a job that is made later."""
        parsed = self._named() or self._parsed(
            self._cluster_client.pool(self._pool_query(), self._context)
        )
        if isinstance(parsed, job.CreateResponse):
            return str(parsed.error.invalidConfig.message)
        return parsed

    def at_once(self) -> bytes | Later | None:
        """Answer a request without files, without waiting.

        None if more than one answer has to be waited for.
        """
        if self._sent.secrets:
            return None
        pools = self._cluster_client.cluster.read(ROOT, self._pool_query())
        if not isinstance(pools, tuple):
            return None
        refused = self._named()
        parsed = refused if refused is not None else self._parsed(pools)
        if isinstance(parsed, job.CreateResponse):
            return bytes(parsed.SerializeToString())
        wanted, pool = parsed
        if wanted.size_bytes() > WHOLE_BYTES_MAX or wanted.spec.after or wanted.spec.unique:
            return None
        return self._cluster_client.command_later(
            job_key(self._id),
            self._command(wanted, pool),
            context=self._context,
            request=self._request,
            encode=lambda answer: bytes(self._created(answer).SerializeToString()),
        )

    def _named(self) -> job.CreateResponse | None:
        """Give the job its id, or return the refusal of the request."""
        sent = self._sent
        self._secrets.end_unless_enabled(sent.secrets)
        self._files.end_unless_good()
        found = self._choose_id()
        if found is None:
            text = "JobID must be valid UUID"
            bad_id = job.InvalidJobId(id=sent.id, message=text)
            return job.CreateResponse(error=Error(invalidJobId=bad_id))
        self._id = found
        return None

    def _parsed(
        self, found: tuple[PoolView, ...]
    ) -> tuple[ParsedJob, PoolView] | job.CreateResponse:
        """Return the job and its pool, or why there cannot be such a job in these pools."""
        pools = self._pools(found)
        if isinstance(pools, str):
            return self._invalid(pools)
        try:
            by, client = run_as(self._context.principal), self._cluster_client
            wanted = to_spec(
                self._sent.config, by, inventories=client.inventories, on_mesos=client.on_mesos
            )
            if client.images_run:
                refuse_commands_in_images(wanted)
            if not client.on_mesos:
                refuse_uris(wanted)
            spec = self._cluster_client.strategies.chosen(wanted.spec, self._sent.config)
            wanted = wanted._replace(spec=spec)
        except SecretVolume as error:
            end(self._context, Code.INVALID_ARGUMENT, text=f"{NO_VOLUMES}: {error}")
        except (BadField, BadAmount) as error:
            return self._invalid(str(error))
        except NotPermitted as error:
            code = Code.PERMISSION_DENIED
            end(self._context, code, text=str(error), field=self._path_of(error.field))
        if wanted.spec.notify is not None:
            why = self._cluster_client.notify.why_not(wanted.spec.notify.url)
            if why:
                return self._invalid(f"config.labels: {NOTIFY}: {why}")
        refs = self._secrets.for_new_job(
            self._sent.secrets, self._sent.config, job_id=self._id, request=self._request
        )
        wanted = wanted.with_secrets(refs)
        warn_of_limits(wanted, pools, context=self._context)
        return wanted, pools[0]

    def _choose_id(self) -> str | None:
        if self._sent.id.value:
            return canonical(self._sent.id.value)
        if self._request is None:
            return str(uuid.uuid4())
        return made_id(self._request, "job")

    def _pool_query(self) -> GetPool:
        # Queried even if no pool is named: a cluster without a root is still starting.
        named = self._sent.config.respoolID.value
        return GetPool(pool_key(named) if named else ROOT, config_only=True)

    def _pools(self, found: tuple[PoolView, ...]) -> tuple[PoolView, ...] | str:
        """Return the pool and those above it, or what is wrong with it."""
        named = self._sent.config.respoolID.value
        if not named:
            return NO_POOL_NAMED
        if pool_key(named) == ROOT:
            return ROOT_NAMED
        if not found:
            return UNKNOWN_POOL
        if found[0].child_count:
            return POOL_OF_POOLS
        return found

    def _create(self, wanted: ParsedJob, pool: PoolView) -> job.CreateResponse:
        key, waits = job_key(self._id), None
        if wanted.spec.after or wanted.spec.unique:
            waits = OthersFirst(self._cluster_client, wanted.spec, context=self._context, job=key)
            problem = waits.problem()
            if problem:
                return self._invalid(problem)
        answer = self._sent_whole(wanted, pool)
        if waits is not None and answer.HasField("error"):
            waits.give_up()
        return answer

    def _sent_whole(self, wanted: ParsedJob, pool: PoolView) -> job.CreateResponse:
        self._secrets.store()
        self._files.store(self._id)
        key, pieces = job_key(self._id), 0
        if wanted.size_bytes() > WHOLE_BYTES_MAX:
            refused = self._send_pieces(key, wanted)
            if refused is not None:
                return refused
            pieces = len(wanted.pieces)
        command = self._command(wanted, pool, pieces=pieces)
        answer = self._cluster_client.ask(
            key, command, context=self._context, request=self._request
        )
        return self._created(answer)

    def _command(self, wanted: ParsedJob, pool: PoolView, *, pieces: int = 0) -> CreateJob:
        """Return the last command; `pieces` were sent before it."""
        overrides = () if pieces else tuple(wanted.pieces.items())
        return CreateJob(
            wanted.spec,
            overrides,
            pieces,
            pool.path,
            drawn=self._drawn,
            options=self._by.options if self._by is not None else None,
            opaque=self._by.opaque if self._by is not None else "",
        )

    def _created(self, answer: Any) -> job.CreateResponse:
        if isinstance(answer, JobCreated):
            return job.CreateResponse(jobId=self._job_id())
        assert isinstance(answer, Refused), answer
        return self._refused(answer)

    def _send_pieces(self, key: Key, wanted: ParsedJob) -> job.CreateResponse | None:
        for number, overrides in wanted.pieces.items():
            piece = AddOverrides(number, overrides)
            answer = self._cluster_client.ask(key, piece, context=self._context)
            if isinstance(answer, Refused):
                if answer.code == "ALREADY_EXISTS" and self._request is not None:
                    # It may be ours, from an earlier copy of the request: the last piece carries
                    # the request key, and gets the same answer again.
                    return None
                return self._refused(answer)
        return None

    def _refused(self, refused: Refused) -> job.CreateResponse:
        self._secrets.withdraw()
        # They may be those of an earlier copy, or of one that was faster.
        if self._request is None and refused.code != "ALREADY_EXISTS":
            self._files.withdraw()
        if refused.code == "INVALID_CONFIG":
            return self._invalid(f"{refused.field}: {refused.text}")
        if refused.code == "ALREADY_EXISTS":
            taken = job.JobAlreadyExists(id=self._job_id(), message=refused.text)
            return job.CreateResponse(error=Error(alreadyExists=taken), jobId=self._job_id())
        if refused.code == "INCOMPLETE":
            return end(self._context, Code.UNAVAILABLE, text=refused)
        field = self._path_of(refused.field)
        return end(self._context, Code.INVALID_ARGUMENT, text=refused, field=field)

    def _invalid(self, text: str) -> job.CreateResponse:
        bad = job.InvalidJobConfig(id=self._job_id(), message=text)
        return job.CreateResponse(error=Error(invalidConfig=bad))

    def _job_id(self) -> peloton_pb2.JobID:
        return peloton_pb2.JobID(value=self._id)
