"""`peloton service`: where the instances of a service are, once or kept up to date in a file.

A proxy reads the file: it is written only when something has changed, and replaced as a whole.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, hint, plain, show
from peloton.cli.shared.session import connected
from peloton.sdk.errors import NotFound, PelotonError, ServiceUnavailable

if TYPE_CHECKING:
    from peloton.sdk.client import Client

HEADER = ("Instance", "Host", "Ports", "Health", "Pod")
FILE_MODE = 0o644

service = LazyGroup(
    name="service",
    help="Show where the instances of a service are.",
    table={
        "endpoints": LazyCommand(
            f"{__name__}:endpoints", ("List available instances, with their ports.")
        )
    },
)


@click.command(cls=OwnCommand)
@click.argument("job")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write them to this file as JSON; it is replaced as a whole.",
)
@click.option("--follow", is_flag=True, help="Keep the file up to date, until Ctrl-C.")
def endpoints(job: str, path: Path | None, follow: bool) -> None:
    """List the instances of JOB that run and are not known to be unhealthy: host and ports.

    \b
    peloton service endpoints JOB
    peloton service endpoints JOB --file endpoints.json --follow
    """  # fmt: skip
    if follow and path is None:
        raise click.UsageError("--follow needs --file")
    with connected() as peloton:
        if path is None:
            show_endpoints(peloton.services.endpoints(job))
        elif follow:
            keep(peloton, job, path=path)
        else:
            replace(path, text_of(peloton.services.endpoints(job)))


def show_endpoints(found: Any) -> None:
    show(
        OutputForms(
            found,
            header=HEADER,
            rows=lambda: [
                (one.instance, one.host, ports_text(one.ports), one.health, one.pod)
                for one in found.endpoints
            ],
            names=lambda: [one.pod for one in found.endpoints],
            nothing=f"No instance is available, of {found.instances}.",
        )
    )


def ports_text(ports: Any) -> str:
    return ", ".join(f"{name}={ports[name]}" for name in sorted(ports))


def text_of(found: Any) -> str:
    """Return the same text for the same endpoints."""
    return json.dumps(plain(found), indent=2, sort_keys=True) + "\n"


def keep(peloton: Client, job: str, *, path: Path) -> None:
    """Write the file now and after each change of a pod that changes it.

    A service that is deleted leaves a file without endpoints, and ends this with an error.
    """
    news: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    reader = functools.partial(read_ahead, peloton, job, news=news)
    threading.Thread(target=reader, daemon=True).start()
    written = ""
    while True:
        # However many pods have changed meanwhile, they are read once.
        found = [news.get()]
        while not news.empty():
            found.append(news.get())
        for error in found:
            if error is not None:
                raise error
        try:
            text = text_of(peloton.services.endpoints(job))
        except NotFound:
            if written:
                replace(path, text_of({**json.loads(written), "endpoints": []}))
            raise
        if text != written:
            replace(path, text)
            written = text


def read_ahead(peloton: Client, job: str, *, news: queue.SimpleQueue[Exception | None]) -> None:
    """Put into `news` that something has changed; the first time once changes are told."""
    try:
        for _ in peloton.services.watch_pods(job, silent=hint):
            news.put(None)
        news.put(ServiceUnavailable(f"the watch of {job} was cancelled"))
    except PelotonError as error:
        news.put(error)


def replace(path: Path, text: str) -> None:
    """Replace the file, so that a reader sees the old or the new one as a whole."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), FILE_MODE)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
