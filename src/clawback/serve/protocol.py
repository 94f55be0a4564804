"""HTTP/1.1 by uvicorn and httptools, with two limits that these lack: the size of the headers, and the time that they may take."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 20.0
_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it."""


class Limited(HttpToolsProtocol):
    """Closes a connection whose headers are too long or too late."""

    late: Any = None
    head: int | None = 0
    """Bytes of the headers that are under way; None once they are whole."""
    size = 0
    """Bytes of the address and the header lines that were read of this request."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._prompt()
        self._wait()

    def on_message_begin(self) -> None:
        self.head, self.size = 0, 0
        self._wait()
        super().on_message_begin()
        scope: Any = self.scope
        scope["clawback.break"] = self._break

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        """The limit is exact, though headers may arrive together with what comes before or after them."""
        self.size += size
        if self.size > MOST_HEADER_BYTES:
            raise ValueError("the headers are too long")  # the parser stops, and the answer is 400

    def on_headers_complete(self) -> None:
        self.head = None
        self._stop()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Piece by piece, so that the limit holds however much comes at once."""
        self._prompt()
        for begin in range(0, len(data), MOST_HEADER_BYTES):
            piece = data[begin : begin + MOST_HEADER_BYTES]
            super().data_received(piece)
            if self.transport is None or self.transport.is_closing():
                return
            if self.head is not None:
                self.head += len(piece)
                if self.head > MOST_HEADER_BYTES:
                    self.transport.close()
                    return

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _prompt(self) -> None:
        """Acknowledge at once what has come. Shells write a request line by line, and each waits for that of the line before: 40 ms else."""
        held = self.transport.get_extra_info("socket") if self.transport is not None else None
        if held is not None and held.family in (socket.AF_INET, socket.AF_INET6) and _QUICK is not None:
            with suppress(OSError):
                held.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)

    def _break(self) -> None:
        """Close in the middle of a response: what was cut off must not look whole."""
        if self.transport is not None:
            self.transport.close()

    def _wait(self) -> None:
        self._stop()
        self.late = self.loop.call_later(HEADER_SECONDS, self._close)

    def _stop(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _close(self) -> None:
        if self.head is not None and self.transport is not None and not self.transport.is_closing():
            self.transport.close()
