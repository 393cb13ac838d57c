"""What has the files of runs on other machines, from a daemon's settings. Must not know a shell."""

from __future__ import annotations

from pathlib import Path

from peloton.failures import CannotStart
from peloton.runtime.far_files import FarFiles
from peloton.runtime.ports import ClusterRecord
from peloton.settings.access_files import BadSecretFile, read_secret_file
from peloton.settings.backend import BackendSetting, MesosBackendSettings


def far_files(setting: BackendSetting, record: ClusterRecord) -> tuple[FarFiles, ...]:
    """Those on the agents of Mesos clusters, of each cluster apart. Raises CannotStart."""
    return tuple(_agent_files(one, record, field=field) for field, one in setting.clusters.items())


def _agent_files(found: MesosBackendSettings, record: ClusterRecord, *, field: str) -> FarFiles:
    # Only where it is wanted, as is the whole backend.
    from peloton.backends.mesos.agent_book import AgentBook
    from peloton.backends.mesos.agent_files import AgentFiles
    from peloton.backends.mesos.operator_api import Credential

    secret = secret_of(found.secret_file, f"{field}.secret_file")
    agents_secret = secret_of(found.agent_secret_file, f"{field}.agent_secret_file")
    ours = Credential(found.principal, secret) if secret else Credential()
    return AgentFiles(
        found.name,
        AgentBook(found.master, ours),
        framework=framework_id(found, record),
        credential=Credential(found.agent_principal, agents_secret),
    )


def framework_id(setting: MesosBackendSettings, record: ClusterRecord) -> str:
    """Our id at the master: it belongs to this cluster of ours, so it outlives each start."""
    return setting.framework or f"peloton-{record.cluster_id.hex()}-{setting.name}"


def secret_of(file: Path | None, field: str) -> str:
    """What is in a file that stands in this field. Raises CannotStart."""
    if file is None:
        return ""
    try:
        return read_secret_file(file).strip()
    except BadSecretFile as error:
        raise CannotStart(f"{field}: {error}") from error
