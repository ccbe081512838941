"""A reactor on real sockets that runs only when a test pumps it, and whose time the test advances."""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, Any

from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from twisted.internet.protocol import Factory

_SMALL_BUFFER = 8192
"""Bytes that a socket holds for a client that does not read."""
_DELIVERY = 0.001
"""Seconds that the kernel gets to take what one end sent to the other."""


class PumpedReactor(Clock):
    """Reads and writes what is ready when it is pumped."""

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[Any, None] = {}
        self._writers: dict[Any, None] = {}

    def addReader(self, reader: Any) -> None:  # noqa: N802 - twisted's name
        """Read from it when there is something."""
        self._readers[reader] = None

    def removeReader(self, reader: Any) -> None:  # noqa: N802 - twisted's name
        """Read no more from it."""
        self._readers.pop(reader, None)

    def addWriter(self, writer: Any) -> None:  # noqa: N802 - twisted's name
        """Write to it when there is room."""
        self._writers[writer] = None

    def removeWriter(self, writer: Any) -> None:  # noqa: N802 - twisted's name
        """Write no more to it."""
        self._writers.pop(writer, None)

    @property
    def watched(self) -> int:
        """How many descriptors are read from or written to."""
        return len(self._readers | self._writers)

    def run(self) -> None:
        """Do what is due until nothing is ready."""
        self.advance(0)
        while True:
            readable, writable, _ = select.select([*self._readers], [*self._writers], [], _DELIVERY)
            if not (readable or writable):
                return
            for reader in readable:
                if reader in self._readers:
                    self._end(reader, reader.doRead(), reading=True)
            for writer in writable:
                if writer in self._writers:
                    self._end(writer, writer.doWrite(), reading=False)
            self.advance(0)

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Advance the time, and do what is due and ready after each step."""
        end = self.seconds() + seconds
        while (left := end - self.seconds()) > 0:
            self.advance(min(left, step))
            self.run()

    def _end(self, descriptor: Any, reason: Exception | None, *, reading: bool) -> None:
        """Tell a descriptor that it is at its end, or at that of its input."""
        if reason is None:
            return
        self.removeReader(descriptor)
        if reading and isinstance(reason, ConnectionDone):
            descriptor.readConnectionLost(Failure(reason))
        else:
            self.removeWriter(descriptor)
            descriptor.connectionLost(Failure(reason))

    def connect(self, factory: Factory, host: str = "127.0.0.1") -> socket.socket:
        """Connect a client to a server's factory over loopback; return the client's end.

        :param host: the client's address as the server sees it.
        """
        with socket.create_server(("127.0.0.1", 0)) as listening:
            # Set before the handshake, as both ends agree on windows then.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SMALL_BUFFER)
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
            client.connect(listening.getsockname())
            accepted, (_, client_port) = listening.accept()
        client.setblocking(False)
        accepted.setblocking(False)
        protocol: Any = factory.buildProtocol(IPv4Address("TCP", host, client_port))
        reactor: Any = self
        port: Any = None
        transport = tcp.Server(accepted, protocol, (host, client_port), port, 0, reactor)
        protocol.makeConnection(transport)
        self.run()
        return client
