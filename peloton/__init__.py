"""Peloton, a unified resource scheduler whose jobs, tasks, pools and hosts are actors.

Importing the package must do nothing: no import of its own parts, no thread, no file. What
functions as tasks are written with, `peloton.task` and `peloton.preemption_notice`, is loaded when
it is named.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"
INSTALL_EXTRA = (
    "in the checkout, run `.venv/bin/pip install -e '.[{0}]'`; beside a wheel, "
    "`pip install 'peloton_scheduler-VERSION-py3-none-any.whl[{0}]'`"
)
"""What to do where a library of an extra is missing. Never `pip install peloton`: on PyPI that name
is somebody else's package."""
INSTALL_FLEET = INSTALL_EXTRA.format("fleet")
INSTALL_MESOS = f"{INSTALL_EXTRA.format('mesos')}; then `pip install --no-deps pymesos`"
"""Without its dependencies: http-parser, which is not used, does not build on newer Pythons."""


def missing_package(name: str) -> str:
    """The text where a package of the extra `fleet` is missing."""
    return f"the package {name} is missing; {INSTALL_FLEET}"


def __getattr__(name: str) -> Any:
    """Load what programs of users name."""
    places = {"task": "peloton.sdk.executor.tasks", "preemption_notice": "peloton.sdk.preemption"}
    if name not in places:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(places[name]), name)
