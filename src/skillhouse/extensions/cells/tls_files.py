"""TLS by files that may be renewed on disk: each new connection uses the files as they are."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct


class TlsPaths(Struct, frozen=True, kw_only=True):
    """PEM files of one side; all are optional for a caller."""

    certificate: Path | None = None
    """With its chain."""
    key: Path | None = None
    ca: Path | None = None
    """Who signed what the other side shows. A server with it takes only callers with a certificate
    of it; a caller without it takes the system's."""


class TlsFiles:
    """Makes the context of connections, made again when a file has changed.

    A new file that cannot be used, such as one that is half written or does not fit its key,
    changes nothing: the former context serves on, and `report` gets why.
    """

    def __init__(
        self,
        paths: TlsPaths,
        *,
        is_server: bool,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read the files once.

        Raises:
            ValueError: a server has no certificate or key, or a file cannot be used.
        """
        if is_server and (paths.certificate is None or paths.key is None):
            raise ValueError("expected a certificate and its key")
        if (paths.certificate is None) != (paths.key is None):
            raise ValueError("expected a certificate and its key together")
        self._paths = paths
        self._is_server = is_server
        self._report = report
        self._stamp: object = self._look()
        try:
            self._context = self._made()
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot use the files for TLS: {_why(error)}") from error

    def context(self) -> ssl.SSLContext:
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._made()
            except (OSError, ValueError) as error:
                self._report(f"the new files for TLS are not used: {_why(error)}")
        return self._context

    def _look(self) -> object:
        found: list[object] = []
        for path in (self._paths.certificate, self._paths.key, self._paths.ca):
            try:
                info = None if path is None else path.stat()
            except OSError as error:
                found.append(error.errno)
            else:
                found.append(info and (info.st_ino, info.st_mtime_ns, info.st_size))
        return tuple(found)

    def _made(self) -> ssl.SSLContext:
        paths = self._paths
        ca = None if paths.ca is None else str(paths.ca)
        if self._is_server:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            if ca is not None:
                # INVARIANT: with a CA, no caller without a certificate of it gets any answer.
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(ca)
        else:
            context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if paths.certificate is not None:
            context.load_cert_chain(paths.certificate, paths.key)
        return context


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
