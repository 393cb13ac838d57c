"""Runs CPython's tests of executors on `PelotonExecutor`: `standard_suite.py FILE local|workers`.

A program of its own, because that file patches what it measures and expects no other threads.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest
from pathlib import Path
from typing import Any

import cloudpickle

from peloton.sdk.executor import PelotonExecutor, PelotonFuture
from peloton.sdk.executor.local import LocalThreads
from tests.sdk.executor.process_backend import ProcessWorkers

BY_NAME = (
    # Their programs import the executor from `concurrent.futures`, by its name.
    "test_interpreter_shutdown",
    "test_submit_after_interpreter_shutdown",
    "test_hang_gh83386",
)

AT_ONCE = ("test_cancel_futures",)
"""They expect that workers run calls as soon as they are submitted; a process takes a moment."""


class SuiteFuture(PelotonFuture[Any]):
    """Ours, made as the suite makes one."""

    def __init__(self) -> None:
        super().__init__(0, LocalThreads(1))


SuiteFuture.__name__ = "Future"  # as messages have it that the suite expects


def loaded(path: Path) -> Any:
    """The module, with `test.support` of the same installation."""
    package = sys.modules.setdefault("test", types.ModuleType("test"))
    package.__path__ = [str(path.parent)]
    spec = importlib.util.spec_from_file_location("test.test_concurrent_futures", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # Workers have no `test` of this installation.
    cloudpickle.register_pickle_by_value(module)
    module.Future = SuiteFuture
    for name, value in vars(module).items():
        if name.endswith("_FUTURE"):
            made = module.create_future(value._state, value._exception, value._result)
            setattr(module, name, made)
    return module


def local(max_workers: int | None = None, **options: Any) -> PelotonExecutor:
    return PelotonExecutor(max_workers, backend="local", **options)


def workers(max_workers: int, **options: Any) -> PelotonExecutor:
    backend = ProcessWorkers(max_workers)
    return PelotonExecutor(max_workers, backend=backend, **options)


def cases(module: Any, backend: str) -> unittest.TestSuite:
    """The tests that are written for any executor, and those of futures."""
    suite, loader = unittest.TestSuite(), unittest.TestLoader()
    made = [module.FutureTests] if backend == "local" else []
    left_out = BY_NAME if backend == "local" else BY_NAME + AT_ONCE
    for name in ("ExecutorTest", "WaitTests", "AsCompletedTests", "ExecutorShutdownTest"):
        bases = (module.ExecutorMixin, getattr(module, name), module.BaseTestCase)
        own = {
            "executor_type": staticmethod({"local": local, "workers": workers}[backend]),
            "__module__": __name__,
        }
        made.append(type(f"Peloton{name}", bases, own))
    for case in made:
        for test in loader.loadTestsFromTestCase(case):
            if test._testMethodName not in left_out:
                suite.addTest(test)
    return suite


if __name__ == "__main__":
    done = unittest.TextTestRunner(verbosity=2).run(cases(loaded(Path(sys.argv[1])), sys.argv[2]))
    print(f"ran {done.testsRun} tests")
    sys.exit(not done.wasSuccessful())
