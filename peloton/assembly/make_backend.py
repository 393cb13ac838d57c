"""The backends that a daemon's settings name, furnished and not started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton import INSTALL_MESOS
from peloton.assembly.folders import keeper_owner
from peloton.assembly.mesos_access import framework_id, secret_of, tls_of
from peloton.assembly.task_accounts import task_accounts
from peloton.assembly.task_limits import task_limits
from peloton.backends.port import Backend
from peloton.backends.process import ProcessBackend
from peloton.backends.process_runs import KeeperSettings
from peloton.backends.simulated import RunScript, SimulatedBackend
from peloton.backends.slack_thread import EVERY_S
from peloton.failures import CannotStart
from peloton.runtime.ports import ClusterRecord
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.runtime.vocabulary import Key
from peloton.settings.backend import MesosBackendSettings
from peloton.settings.daemon import DaemonSettings


def make_backends(
    settings: DaemonSettings,
    record: ClusterRecord,
    *,
    engine: Any,
    vault: SecretVault | None = None,
    obeyed: Callable[[Key, int], object],
) -> list[Backend]:
    """Return the backends: one, or one for each cluster of Mesos.

    `engine` runs containers here, or is None. `vault` has the secrets of jobs, if any. `obeyed`
    takes a host, and an epoch of its owners that is above ours and was obeyed.
    """
    setting = settings.backend
    names = [host.name for host in setting.hosts]
    if setting.process is not None:
        owner = keeper_owner(record)
        keeper = KeeperSettings(
            sandboxes_kept_max=setting.process.keep_sandboxes,
            sandboxes_kept_s=setting.process.keep_sandboxes_s,
            sandboxes_kept_mb=setting.process.keep_sandboxes_mb,
            disk_free_mb=setting.process.keep_sandboxes_free_mb,
        )
        backend = ProcessBackend(setting.process.folder, names, owner=owner, keeper=keeper)
        backend.accounts = task_accounts(settings)
        backend.limits = task_limits(settings, engine=engine)
        backend.measured_slack_s = EVERY_S if setting.process.measured_slack else None
        backend.epoch_obeyed = obeyed
        if vault is not None:
            backend.secrets.read = vault.read
        return [backend]
    if setting.mesos is not None:
        links = setting.clusters.items()
        return [_mesos(one, record, field=field, vault=vault) for field, one in links]
    assert setting.simulated is not None
    fates = RunScript(setting.simulated.seed, setting.simulated.duration_s)
    return [SimulatedBackend(names, fates)]


def _mesos(
    setting: MesosBackendSettings, record: ClusterRecord, *, field: str, vault: SecretVault | None
) -> Backend:
    try:
        # Only where it is wanted: pymesos is an extra.
        from peloton.backends.mesos.backend import MesosBackend
        from peloton.backends.mesos.framework import Framework
        from peloton.backends.mesos.runs.keeper_tasks import KEEPER, KeeperProgram, default_command
    except ImportError as error:
        text = f"{field} needs the extra `mesos` ({error}): {INSTALL_MESOS}"
        raise CannotStart(text) from error
    keeper = None
    if setting.batch_by == KEEPER:
        command = setting.executor or default_command()
        keeper = KeeperProgram(command, setting.user, setting.executor_idle_s)
    backend = MesosBackend(
        Framework(
            cluster=setting.name,
            master=setting.master,
            framework_id=framework_id(setting, record),
            role=setting.role,
            user=setting.user,
            principal=setting.principal,
            secret=secret_of(setting.secret_file, f"{field}.secret_file"),
            tls=tls_of(setting, field=field),
            revocable=setting.revocable,
            keeper=keeper,
        )
    )
    if vault is not None:
        backend.secrets.read = vault.read
    return backend
