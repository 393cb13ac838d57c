"""Calls of the contract that are not implemented yet, each refused by its name.

The texts, one for each call, are made from the services of the generated modules, so that no list
has to be maintained.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

from google.protobuf.descriptor import ServiceDescriptor

from peloton import api, private
from peloton.gateway.translate.short_names import SHORT


@functools.cache
def services() -> dict[str, list[str]]:
    """Return every service of the contract under its full names, with its methods.

    It is constant, and shared: a process may have many servers, as tests do.
    """
    found: dict[str, list[str]] = {}
    for service in described_services():
        methods = [method.name for method in service.methods]
        found[service.full_name] = methods
        if service.full_name in SHORT:
            found[SHORT[service.full_name]] = methods
    return found


def described_services() -> Iterator[ServiceDescriptor]:
    """The services of the generated modules."""
    for package in (api, private):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                yield from import_module(module.name).DESCRIPTOR.services_by_name.values()


@functools.cache
def refusals() -> dict[str, str]:
    """Return the answer to each call of the contract that nothing serves, by its path."""
    return {
        f"/{service}/{method}": f"{service.rpartition('.')[2]}.{method} is not supported yet"
        for service, methods in services().items()
        for method in methods
    }
