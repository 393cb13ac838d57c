"""The access to a Mesos cluster, from a daemon's settings: its master, and our credential.

Serves the backend and the doctor, and makes the reader of agents' files. No connection is made
here.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from peloton.failures import CannotStart
from peloton.runtime.far_files import FarFiles
from peloton.runtime.ports import ClusterRecord
from peloton.settings.access_files import BadSecretFile, exposed, read_secret_file
from peloton.settings.backend import BackendSetting, MesosBackendSettings, MesosTls

if TYPE_CHECKING:
    from peloton.backends.mesos.masters.leading_master import LeadingMaster


def leading_master(found: MesosBackendSettings, *, field: str) -> LeadingMaster:
    """Return the master, as called by the settings' principal. Raises CannotStart."""
    # Only where it is wanted, as is the whole backend.
    from peloton.backends.mesos.masters.leading_master import LeadingMaster
    from peloton.backends.mesos.masters.operator_api import Credential

    secret = secret_of(found.secret_file, f"{field}.secret_file")
    ours = Credential(found.principal, secret) if secret else Credential()
    return LeadingMaster(found.master, ours, tls=tls_of(found, field=field))


def framework_id(setting: MesosBackendSettings, record: ClusterRecord) -> str:
    """Return our id at the master, which belongs to this cluster and outlives each start."""
    return setting.framework or f"peloton-{record.cluster_id.hex()}-{setting.name}"


def secret_of(file: Path | None, field: str) -> str:
    """Return the secret in a file that this field names. Raises CannotStart."""
    if file is None:
        return ""
    try:
        found = read_secret_file(file).strip()
    except BadSecretFile as error:
        raise CannotStart(f"{field}: {error}") from error
    if not found:
        raise CannotStart(f"{field}: {file} is empty")
    return found


def tls_of(found: MesosBackendSettings, *, field: str) -> ssl.SSLContext | None:
    """Return the TLS context, or None for plain HTTP.

    Raises CannotStart with all that is wrong with the files.
    """
    if found.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates, and names
    texts = [*_loaded(context, found.tls, field=f"{field}.tls")]
    if texts:
        raise CannotStart("\n".join(texts))
    return context


def _loaded(context: ssl.SSLContext, files: MesosTls, *, field: str) -> Iterator[str]:
    """Load the files, and yield what is wrong with them."""
    try:
        context.load_verify_locations(cafile=files.ca)
    except OSError as error:
        yield f"{field}.ca: {files.ca}: {_why(error)}"
    if files.certificate is None or files.key is None:
        return
    for name, file in (("certificate", files.certificate), ("key", files.key)):
        try:
            file.read_bytes()
        except OSError as error:
            yield f"{field}.{name}: {file}: {_why(error)}"
            return
    text = exposed(files.key)
    if text:
        yield f"{field}.key: {text}"
    try:
        # Do not prompt for the passphrase of a key: a daemon has no terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except OSError as error:
        yield f"{field}.certificate: {files.certificate} with {files.key}: {_why(error)}"


def _why(error: OSError) -> str:
    """Return what is wrong with a file."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM that we can read"
    return error.strerror or str(error)


def problems(setting: BackendSetting) -> Iterator[str]:
    """Yield what would prevent the start, without making anything."""
    for field, found in setting.clusters.items():
        for name in ("secret_file", "agent_secret_file"):
            try:
                secret_of(getattr(found, name), f"{field}.{name}")
            except CannotStart as error:
                yield str(error)
        try:
            tls_of(found, field=field)
        except CannotStart as error:
            yield from str(error).splitlines()


def far_files(setting: BackendSetting, record: ClusterRecord) -> tuple[FarFiles, ...]:
    """Return the access to files on the agents, one for each Mesos cluster. Raises CannotStart."""
    return tuple(_agent_files(one, record, field=field) for field, one in setting.clusters.items())


def _agent_files(found: MesosBackendSettings, record: ClusterRecord, *, field: str) -> FarFiles:
    # Only where it is wanted, as is the whole backend.
    from peloton.backends.mesos.agent_files import AgentFiles
    from peloton.backends.mesos.masters.agent_book import AgentBook
    from peloton.backends.mesos.masters.operator_api import Credential

    agents_secret = secret_of(found.agent_secret_file, f"{field}.agent_secret_file")
    return AgentFiles(
        found.name,
        AgentBook(leading_master(found, field=field)),
        framework=framework_id(found, record),
        credential=Credential(found.agent_principal, agents_secret),
    )
