"""The backend that a daemon's settings name, furnished and not started. Must not know a shell."""

from __future__ import annotations

from typing import Any

from peloton.assembly.folders import keeper_owner
from peloton.assembly.kept_sandboxes import keeper_settings
from peloton.assembly.task_accounts import task_accounts
from peloton.assembly.task_limits import task_limits
from peloton.backends.port import Backend
from peloton.backends.process import EVERY_S, ProcessBackend
from peloton.backends.simulated import RunScript, SimulatedBackend
from peloton.runtime.ports import ClusterRecord
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.settings.daemon import DaemonSettings


def make_backend(
    settings: DaemonSettings,
    record: ClusterRecord,
    *,
    engine: Any,
    vault: SecretVault | None = None,
) -> Backend:
    """`engine`: what runs containers here, or None. `vault`: where secrets of jobs are, if any."""
    setting = settings.backend
    names = [host.name for host in setting.hosts]
    if setting.process is not None:
        owner = keeper_owner(record)
        keeper = keeper_settings(setting.process)
        backend = ProcessBackend(setting.process.folder, names, owner=owner, keeper=keeper)
        backend.accounts = task_accounts(settings)
        backend.limits = task_limits(settings, engine=engine)
        backend.measured_slack_s = EVERY_S if setting.process.measured_slack else None
        if vault is not None:
            backend.secrets.read = vault.read
        return backend
    assert setting.simulated is not None
    fates = RunScript(setting.simulated.seed, setting.simulated.duration_s)
    return SimulatedBackend(names, fates)
