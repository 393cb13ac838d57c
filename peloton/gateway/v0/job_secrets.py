"""Secrets that come with a job, or with a change of one: checked, stored, and named in its config.

The secrets of a request become references, which a config keeps, and sealed rows, written before
the command is sent. A value must not enter a command, an answer, an error or the digest of a
request, as these are journaled or shown; readers of a job see ids and paths. A command that is
refused leaves no rows; those of one whose answer was lost are found by the sweep
(`assembly/secret_sweep.py`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from google.protobuf.message import Message

from peloton.actors.host.run_spec import SECRETS_MAX, SecretRef, clash, path_problem, place
from peloton.actors.job.messages import JobView
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0 import peloton_pb2 as v0
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha import peloton_pb2 as v1
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.requests import RequestId
from peloton.gateway.translate.texts import client_name, derived
from peloton.runtime.shells.secret_vault import SecretsUnavailable, SecretVault
from peloton.runtime.vocabulary import Key

BYTES_MAX = 512 * 1024
"""Of all secrets of a job together: each run gets them in one message."""
NOT_SUPPORTED = "secrets not supported by cluster"
NO_VOLUMES = "adding secret volumes directly in config is not allowed"
FEWER = "fewer secrets than the job has: send each of them again"
_Asked = TypeVar("_Asked", bound=Message)


class GivenSecret(NamedTuple):
    """A secret as a client sent it, decoded; never shown."""

    id: str
    path: str
    data: bytes

    def __repr__(self) -> str:
        return f"GivenSecret({self.id!r}, {self.path!r})"


class BadSecret(Exception):
    """A secret breaks a rule; the text does not contain its value."""


def given_secrets(sent: Sequence[Any]) -> list[GivenSecret]:
    """Return the secrets of a request of either version. Raises BadSecret."""
    if len(sent) > SECRETS_MAX:
        raise BadSecret(f"{len(sent)} secrets, the limit is {SECRETS_MAX}")
    found = []
    for one in sent:
        if not one.path:
            raise BadSecret("secret does not have a path")
        why = path_problem(one.path)
        if why:
            raise BadSecret(f"the path {one.path!r} of a secret {why}")
        try:
            data = base64.b64decode(one.value.data, validate=True)
        except binascii.Error as error:
            raise BadSecret(f"failed to decode secret with error: {error}") from None
        secret_id = one.secret_id if isinstance(one, v1.Secret) else one.id
        found.append(GivenSecret(secret_id.value, one.path, data))
    size_bytes = sum(len(one.data) for one in found)
    if size_bytes > BYTES_MAX:
        raise BadSecret(f"secrets of {size_bytes} bytes in all, the limit is {BYTES_MAX}")
    _refuse_clash([one.path for one in found])
    return found


def _refuse_clash(paths: Sequence[str]) -> None:
    why = clash(paths)
    if why:
        raise BadSecret(f"paths of secrets: {why}")


def masked(sent: _Asked, vault: SecretVault | None) -> _Asked:
    """Return the request with a keyed digest in place of each value: all that may be kept of it."""
    secrets: Any = getattr(sent, "secrets", ())
    if not secrets:
        return sent
    found = type(sent)()
    found.CopyFrom(sent)
    for one in getattr(found, "secrets"):  # noqa: B009 - of several kinds of requests
        one.value.data = vault.fingerprint(one.value.data) if vault is not None else b""
    return found


def check_container(config: job.JobConfig) -> None:
    """Refuse secrets for runs with an image, except those of the Mesos containerizer, as far as
    clients say.

    Raises BadSecret.
    """
    container = config.defaultConfig.container
    if config.defaultConfig.HasField("container") and container.type != mesos.ContainerInfo.MESOS:
        kind = mesos.ContainerInfo.Type.Name(container.type)
        raise BadSecret(f"container type {kind} does not match MESOS")


class SecretsOfCall:
    """The secrets of one call that makes or changes a job. Without any it does nothing."""

    def __init__(self, cluster_client: ClusterClient, context: Context) -> None:
        self._vault = cluster_client.secrets
        self._context = context
        self._values: dict[str, bytes] = {}
        self._job = ""
        self._named: tuple[str, ...] | None = None  # not known of a job that is to be made
        self._new: tuple[str, ...] = ()

    def end_unless_enabled(self, sent: Sequence[Any], *, text: str = NOT_SUPPORTED) -> None:
        """End the call if it has secrets and the cluster no key for them."""
        if sent and self._vault is None:
            end(self._context, Code.INVALID_ARGUMENT, text=text)

    def for_new_job(
        self, sent: Sequence[Any], config: job.JobConfig, *, job_id: str, request: RequestId | None
    ) -> tuple[SecretRef, ...]:
        """Return references to the secrets of a job that is about to be made."""
        if not sent:
            return ()
        with self._wrong():
            check_container(config)
            return self._as_new(given_secrets(sent), job_id, request=request)

    def for_replaced(
        self,
        sent: Sequence[Any],
        config: job.JobConfig,
        *,
        view: JobView,
        request: RequestId | None,
    ) -> tuple[SecretRef, ...]:
        """Return references of another spec of a job.

        A secret that is sent again, by id or by path, is another one from then on, so that the spec
        before has the value before; others stay.
        """
        known = view.spec.default.secrets
        if not sent:
            return known
        with self._wrong():
            check_container(config)
            given = given_secrets(sent)
            new = self._as_new(given, client_name(view.summary.job), request=request)
            kept = [ref for ref in known if _match(ref, given) is None]
            refs = (*kept, *new)
            if len(refs) > SECRETS_MAX:
                raise BadSecret(f"{len(refs)} secrets, the limit is {SECRETS_MAX}")
            _refuse_clash([ref.path for ref in refs])
        self._named = tuple(ref.id for ref in (*known, *refs))
        return refs

    def for_updated(self, sent: Sequence[Any], *, view: JobView) -> None:
        """Take other values for the secrets of a batch job; all of them have to be sent."""
        known = view.spec.default.secrets
        with self._wrong():
            if len(sent) < len(known):
                raise BadSecret(FEWER)
            given = given_secrets(sent)
            used = set()
            for ref in known:
                one = _match(ref, given)
                if one is None:
                    raise BadSecret(f"request missing secret with id {ref.id}")
                if place(one.path) != place(ref.path):
                    raise BadSecret(f"the path of secret {ref.id} cannot be changed")
                self._values[ref.id] = one.data
                used.add(one.path)
            for one in given:
                if one.path not in used:
                    text = "a secret cannot be added: instances keep the config they began with"
                    raise BadSecret(f"{one.path}: {text}")
        self._job = client_name(view.summary.job)
        self._named = tuple(ref.id for ref in known)

    def store(self) -> None:
        """Write the values; end the call if that cannot be done."""
        if not self._values:
            return
        assert self._vault is not None
        try:
            self._vault.put(self._job, self._values, named=self._named)
        except SecretsUnavailable as error:
            text = f"the secrets cannot be stored: {error}"
            end(self._context, Code.UNAVAILABLE, text=text)

    def withdraw(self) -> None:
        """Delete what was written for a refused command alone, so far as that is sure."""
        if self._new and self._vault is not None:
            with contextlib.suppress(SecretsUnavailable):  # the sweep finds them
                self._vault.remove(self._job, self._new)

    def _as_new(
        self, given: list[GivenSecret], job_id: str, *, request: RequestId | None
    ) -> tuple[SecretRef, ...]:
        """Return references with ids that no other request gets.

        A repeat of this request gets the same, and writes the same again.
        """
        refs = []
        for one in given:
            drawn = str(uuid.uuid4())
            if request is not None:
                drawn = derived(f"{request[0]}/{request[1].hex()}/{one.path}", "secret")
            refs.append(SecretRef(drawn, one.path))
            self._values[drawn] = one.data
        # Those of a request with a key may be an earlier copy's, and named by the job by now.
        self._job, self._new = job_id, tuple(ref.id for ref in refs) if request is None else ()
        return tuple(refs)

    @contextlib.contextmanager
    def _wrong(self) -> Iterator[None]:
        try:
            yield
        except BadSecret as error:
            self._end(str(error))

    def _end(self, text: str) -> NoReturn:
        end(self._context, Code.INVALID_ARGUMENT, text=text)


def _match(ref: SecretRef, given: Sequence[GivenSecret]) -> GivenSecret | None:
    """Return what was sent for a secret: by its id, or else by its path."""
    by_id = next((one for one in given if one.id and one.id == ref.id), None)
    return by_id or next((one for one in given if place(one.path) == place(ref.path)), None)


# ---- of jobs that exist ----


def secrets_v0(view: JobView) -> list[v0.Secret]:
    """Return ids and paths of the secrets."""
    return [v0.Secret(id={"value": one.id}, path=one.path) for one in view.spec.default.secrets]


def secrets_v1(view: JobView) -> list[v1.Secret]:
    """Return ids and paths of the secrets."""
    refs = view.spec.default.secrets
    return [v1.Secret(secret_id={"value": one.id}, path=one.path) for one in refs]


def has_secrets(cluster_client: ClusterClient, key: Key, *, context: Context) -> bool:
    """Return whether a job that is about to be deleted has secrets: asked only if there may be
    some."""
    if cluster_client.secrets is None:
        return False
    view = cluster_client.job(key, context)
    return view is not None and bool(view.spec.default.secrets)


def forget_secrets(cluster_client: ClusterClient, key: Key) -> None:
    """Delete the secrets of a deleted job; what cannot be deleted now is found by the sweep."""
    assert cluster_client.secrets is not None
    with contextlib.suppress(SecretsUnavailable):
        cluster_client.secrets.forget(client_name(key))
