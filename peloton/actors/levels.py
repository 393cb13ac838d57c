"""How a refusal says that the cluster's feature level is too low. It must not decide whether it is.

A cluster of an earlier version has a lower level although all its daemons are upgraded already, so
the text names what is left to do.
"""

from __future__ import annotations


def below_level(what: str, needed: int, *, level: int) -> str:
    """`gangs need feature level 6, …`; `what` ends with its verb."""
    return (
        f"{what} feature level {needed}, the cluster's is {level}: once every daemon runs this "
        "version or a later one, an operator raises it with `peloton features raise`"
    )
