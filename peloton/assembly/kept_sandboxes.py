"""Which sandboxes a keeper keeps, from the settings of its daemon.

Turns a setting into the arguments of a keeper. It must not check them: the settings do.
"""

from __future__ import annotations

from peloton.backends.process_runs import KeeperSettings
from peloton.settings.backend import ProcessBackendSettings
from peloton.settings.sandboxes import kept_for_s


def keeper_settings(setting: ProcessBackendSettings) -> KeeperSettings:
    """What the keeper is started with."""
    return KeeperSettings(
        sandboxes_kept_max=setting.keep_sandboxes,
        sandboxes_kept_s=kept_for_s(setting),
        sandboxes_kept_mb=setting.keep_sandboxes_mb,
        disk_free_mb=setting.keep_sandboxes_free_mb,
    )
