"""Ends the worlds of a test: pykka's registry would keep each of them in memory to the end."""

from __future__ import annotations

from collections.abc import Iterator

import pykka
import pytest


@pytest.fixture(autouse=True)
def worlds_end() -> Iterator[None]:
    before = {ref.actor_urn for ref in pykka.ActorRegistry.get_all()}
    yield
    for ref in pykka.ActorRegistry.get_all():
        if ref.actor_urn not in before:
            pykka.ActorRegistry.unregister(ref)
