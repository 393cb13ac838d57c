"""What has the files of runs on other machines, from a daemon's settings. Must not know a shell."""

from __future__ import annotations

from pathlib import Path

from peloton.failures import CannotStart
from peloton.runtime.far_files import FarFiles
from peloton.runtime.ports import ClusterRecord
from peloton.settings.access_files import BadSecretFile, read_secret_file
from peloton.settings.backend import BackendSetting, MesosBackendSettings


def far_files(setting: BackendSetting, record: ClusterRecord) -> FarFiles | None:
    """Those on the agents of a Mesos cluster, where that is the backend. Raises CannotStart."""
    found = setting.mesos
    if found is None:
        return None
    # Only where it is wanted, as is the whole backend.
    from peloton.backends.mesos.agent_book import AgentBook
    from peloton.backends.mesos.agent_files import AgentFiles
    from peloton.backends.mesos.operator_api import Credential

    secret = secret_of(found.secret_file, "secret_file")
    agents_secret = secret_of(found.agent_secret_file, "agent_secret_file")
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


def secret_of(file: Path | None, name: str) -> str:
    """What is in a file of `backend.mesos`. Raises CannotStart."""
    if file is None:
        return ""
    try:
        return read_secret_file(file).strip()
    except BadSecretFile as error:
        raise CannotStart(f"backend.mesos.{name}: {error}") from error
