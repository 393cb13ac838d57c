"""What a config says of a secret: which one, and where its run finds it. Never what it holds.

These values are journaled and shown to everybody who may see the job. The data lies in a store of
its own, and is read only where a run is started.
"""

from __future__ import annotations

from peloton.runtime.vocabulary import Value


class SecretRef(Value, frozen=True, gc=False, array_like=True):
    """A secret by its id in the store of secrets, and the path of its file."""

    id: str
    path: str
