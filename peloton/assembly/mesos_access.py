"""How a Mesos cluster is reached, from a daemon's settings: by whom, and as whom.

Serves the backend, the files of agents, and the doctor. Must not know a shell, nor connect.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from peloton.failures import CannotStart
from peloton.runtime.ports import ClusterRecord
from peloton.settings.access_files import BadSecretFile, read_secret_file
from peloton.settings.backend import MesosBackendSettings

if TYPE_CHECKING:
    from peloton.backends.mesos.leading_master import LeadingMaster


def leading_master(found: MesosBackendSettings, *, field: str) -> LeadingMaster:
    """Whom operators ask, as the principal of the settings in this field. Raises CannotStart."""
    # Only where it is wanted, as is the whole backend.
    from peloton.backends.mesos.leading_master import LeadingMaster
    from peloton.backends.mesos.operator_api import Credential

    secret = secret_of(found.secret_file, f"{field}.secret_file")
    ours = Credential(found.principal, secret) if secret else Credential()
    return LeadingMaster(found.master, ours)


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
