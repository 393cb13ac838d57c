"""Rules about size and outline: lengths, widths, parameters, docstrings.

docs/contributing.md has the same numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import Function, Module

MODULE_LINES_MAX = 400
# One thing each, and whole: cut up, the parts would reach into each other's fields.
WHOLE_LINES_MAX = 600
WHOLE = {
    "peloton/runtime/core/shard.py",  # the pump: all that one frame goes through
    "peloton/runtime/simulation/membership.py",  # the service and both ends of its sessions
    "peloton/runtime/ports.py",  # the ports: shapes and protocols, no behaviour
    "peloton/actors/respool/tree.py",  # pools, lots and queues, which change together
    "peloton/backends/process.py",  # one backend: each order and each report of its keeper
    "peloton/chaos/cluster/rules/shadow_ledger.py",  # one memory of all facts
    "peloton/gateway/access/access_table.py",  # the table of all calls
    "peloton/backends/keeper/runs.py",  # all runs of a keeper: each step changes the same tables
    "peloton/placement/index.py",  # the columns of all hosts, which change together
}
FUNCTION_LINES_MAX = 50
LINE_COLUMNS_MAX = 100
PARAMETERS_MAX = 5
POSITIONAL_MAX = 2
# The one exception: the tables of a kind, `decide(state, message, now)`, are called by position.
NOW = ("now", "at")


def module_length(module: Module) -> Iterator[str]:
    lines = module.source.count("\n")
    limit = WHOLE_LINES_MAX if module.path in WHOLE else MODULE_LINES_MAX
    if lines > limit:
        words = "find the missing noun and move it out"
        yield f"{module.path} has {lines} lines, {limit} at most: {words}"


def line_width(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.source.splitlines(), 1):
        if len(line) > LINE_COLUMNS_MAX:
            words = f"{len(line)} columns, {LINE_COLUMNS_MAX} at most: break the line"
            yield f"{module.path}:{number}: {words}"


def function_length(module: Module) -> Iterator[str]:
    for function, _ in module.functions():
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            words = f"{function.name} has {lines} lines, {FUNCTION_LINES_MAX} at most"
            yield module.at(function, f"{words}: move a step of it into a function of its own")


def framework_calls_it(function: Function) -> bool:
    """Signatures that are not ours to choose: protocols of Python, callbacks of click."""
    dunder = function.name.startswith("__") and function.name != "__init__"
    decorators = " ".join(ast.unparse(d) for d in function.decorator_list)
    return dunder or bool(re.search(r"\b(click|command|option|argument|overload)\b", decorators))


def parameters(module: Module) -> Iterator[str]:
    for function, method in module.functions():
        if framework_calls_it(function):
            continue
        plain = [*function.args.posonlyargs, *function.args.args]
        if method:
            plain = plain[1:]
        rest = [function.args.vararg, function.args.kwarg]
        count = len(plain) + len(function.args.kwonlyargs) + sum(1 for a in rest if a)
        if count > PARAMETERS_MAX:
            words = f"{function.name} has {count} parameters, {PARAMETERS_MAX} at most"
            yield module.at(function, f"{words}: make one value of those that go together")
        table = len(plain) == POSITIONAL_MAX + 1 and plain[-1].arg in NOW
        if len(plain) > POSITIONAL_MAX and not table:
            words = f"{function.name} takes {len(plain)} by position, {POSITIONAL_MAX} at most"
            yield module.at(function, f"{words}: put * before {plain[POSITIONAL_MAX].arg}")


def docstring(module: Module) -> Iterator[str]:
    text = ast.get_docstring(module.tree)
    if not text:
        yield f"{module.path}:1: no docstring: say in a sentence what the module is for"
        return
    if not text.splitlines()[0].rstrip().endswith((".", ":", "?")):
        words = "the first line of the docstring is no whole sentence: end it with a full stop"
        yield f"{module.path}:1: {words}"
