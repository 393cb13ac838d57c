"""The decorator `task`: a function that says what it needs, and can be submitted as it is."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar, Unpack

from peloton.sdk.executor.executor import PelotonExecutor
from peloton.sdk.executor.futures import PelotonFuture
from peloton.sdk.executor.needs import NeedsWorkers, TaskNeeds
from peloton.sdk.executor.options import WorkerOptions, WorkerSettings

P = ParamSpec("P")
T = TypeVar("T")


class TaskFunction(NeedsWorkers, Generic[P, T]):
    """A function with needs. A call of it is a plain call, here and now."""

    def __init__(self, function: Callable[P, T], needs: TaskNeeds) -> None:
        self.function: Callable[P, T] = function
        self.needs = needs
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Callable[..., object], tuple[object, ...]]:
        """By its name, where a worker finds it so; the name of the function is that of the task."""
        module, name = self.function.__module__, self.function.__qualname__
        if module != "__main__":
            with contextlib.suppress(KeyError, AttributeError):
                if operator.attrgetter(name)(sys.modules[module]) is self:
                    return name
        return TaskFunction, (self.function, self.needs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> PelotonFuture[T]:
        """Run the function on a worker with these needs; return the future.

        Tasks with the same needs share an executor, which reaches the cluster of the environment
        and ends with this process.
        """
        return executor_for(self.needs.settings).submit(self, *args, **kwargs)


def task(**options: Unpack[WorkerOptions]) -> Callable[[Callable[P, T]], TaskFunction[P, T]]:
    """Decorate a function with what a worker for it requests: `@task(cpu=2, gpu=1, pool="/ml")`.

    Raises BadSpec if an option is wrong.
    """
    needs = TaskNeeds(WorkerSettings.of(options), tuple(options))
    return lambda function: TaskFunction(function, needs)


_executors: dict[WorkerSettings, PelotonExecutor] = {}
_lock = threading.Lock()


def executor_for(settings: WorkerSettings) -> PelotonExecutor:
    """Return the executor that tasks with these settings share."""
    with _lock:
        found = _executors.get(settings)
        if found is None or found.is_closed:
            found = PelotonExecutor(**settings.as_options())
            _executors[settings] = found
        return found
