"""Reloading of a daemon that runs: users, tokens, certificates and rules are read anew.

Puts the present settings into force, all of it or nothing, and reports which changes need a
restart. Files are read only on an order of a person, or of a program that renews certificates
(SIGHUP).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from peloton.assembly import access, exchange
from peloton.assembly.access import ClientAccess
from peloton.assembly.listeners import ClientListeners
from peloton.failures import CannotStart
from peloton.runtime.adapters.grpc_exchange import CannotListen, GrpcExchange
from peloton.runtime.core.health import NotReadyReason
from peloton.settings.certificate_dates import CertificateDates, dates_of, texts_now
from peloton.settings.changes import (
    certificate_files,
    differing,
    needs_restart,
    prints_of,
    with_files_of,
)
from peloton.settings.config import BadSetting
from peloton.settings.daemon import DaemonSettings

RELOAD, TOKEN, CERTIFICATES = "reload", "auth.token_file", "certificates"
KEPT = "what was read before it is still in force"


class Reloading:
    """The reloading of one daemon. Without an exchange it is alone."""

    def __init__(
        self,
        settings: DaemonSettings,
        listeners: ClientListeners,
        *,
        report: Callable[[str], object],
    ) -> None:
        """Set up. `report` takes lines for people."""
        self._started = self._running = settings
        self._listeners = listeners
        self._report = report
        self.exchange: GrpcExchange | None = None
        self._prints = _prints(settings)
        self._bad = ""
        self._dates = self._dates_told(settings)
        self._one_at_a_time = threading.Lock()
        listeners.reload_notes = self.notes

    def token_made(self) -> None:
        """Note the token that the first start has made, after the files were looked at."""
        self._prints |= {
            name: text for name, text in _prints(self._started).items() if name == TOKEN
        }

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return the remarks of health, which are no reason against being ready."""
        found = [NotReadyReason(RELOAD, self._bad)] if self._bad else []
        return (*found, *(NotReadyReason(CERTIFICATES, text) for text in texts_now(self._dates)))

    def _dates_told(self, settings: DaemonSettings) -> tuple[CertificateDates, ...]:
        """Return the dates of the settings' certificates; report which have ended, or soon will."""
        found = dates_of(certificate_files(settings))
        for text in texts_now(found):
            self._report(text)
        return found

    def reload(self, read: Callable[[], DaemonSettings]) -> None:
        """Take the new settings if all of them are right; else nothing."""
        with self._one_at_a_time:
            try:
                self._take(read())
            # OSError as well: a file that cannot be read must not end a daemon that serves.
            except (BadSetting, CannotStart, CannotListen, OSError) as error:
                texts = error.texts if isinstance(error, BadSetting) else str(error).splitlines()
                self._bad = f"{texts[0]}; {KEPT}"
                for text in texts:
                    self._report(f"reload: {text}")
                self._report(f"reload: nothing was taken: {KEPT}")

    def _take(self, read: DaemonSettings) -> None:
        # Prints come first: what is written meanwhile counts as changed at the next time.
        prints, wanted = _prints(read), with_files_of(self._running, read)
        texts = [*self._problems(wanted)]
        if texts:
            raise BadSetting(*texts)
        # Last of what may fail: it makes a token where there is none.
        fresh = ClientAccess(wanted, report=self._report)
        tls = exchange.tls_of(wanted)
        if self.exchange is not None and tls is not None:
            self.exchange.replace(tls)
        self._listeners.access.take(fresh)
        changed = differing(self._prints, prints)
        waiting = needs_restart(changed, read, running=self._started)
        taken = [name for name in changed if name not in waiting]
        self._running, self._bad = wanted, ""
        self._dates = self._dates_told(wanted)
        self._prints |= {name: prints[name] for name in taken}
        text = f"in force: {', '.join(taken)}" if taken else "no file has changed"
        self._report(f"reload: {text}")
        for name in waiting:
            self._report(f"reload: {name} has changed, and needs a restart of this daemon")

    @staticmethod
    def _problems(wanted: DaemonSettings) -> Iterator[str]:
        yield from access.problems(wanted)
        yield from wanted.access.problems()  # not those of a file that needs a restart
        if wanted.tls is not None:
            yield from exchange.problems(wanted.tls)


def _prints(settings: DaemonSettings) -> dict[str, str]:
    has_token = settings.callers.has_token
    files = {TOKEN: access.token_file(settings)} if has_token else {}
    return prints_of(settings, files)
