"""What has the files of runs on other machines, from a daemon's settings. Must not know a shell."""

from __future__ import annotations

from peloton.assembly.mesos_access import framework_id, leading_master, secret_of
from peloton.runtime.far_files import FarFiles
from peloton.runtime.ports import ClusterRecord
from peloton.settings.backend import BackendSetting, MesosBackendSettings


def far_files(setting: BackendSetting, record: ClusterRecord) -> tuple[FarFiles, ...]:
    """Those on the agents of Mesos clusters, of each cluster apart. Raises CannotStart."""
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
