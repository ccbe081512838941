"""A reactor on real sockets that runs only when a test pumps it, with a simulated clock."""

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
"""Size of a socket buffer, in bytes."""
_DELIVERY = 0.001
"""Seconds to wait for data that the kernel is passing from one socket to another."""


class PumpedReactor(Clock):
    """Reads and writes ready descriptors when it is pumped."""

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[Any, None] = {}
        self._writers: dict[Any, None] = {}

    def addReader(self, reader: Any) -> None:  # noqa: N802 - twisted's name
        self._readers[reader] = None

    def removeReader(self, reader: Any) -> None:  # noqa: N802 - twisted's name
        self._readers.pop(reader, None)

    def addWriter(self, writer: Any) -> None:  # noqa: N802 - twisted's name
        self._writers[writer] = None

    def removeWriter(self, writer: Any) -> None:  # noqa: N802 - twisted's name
        self._writers.pop(writer, None)

    @property
    def watched(self) -> int:
        """Number of descriptors with readers or writers."""
        return len(self._readers | self._writers)

    def run(self) -> None:
        """Run due calls and ready descriptors until nothing is left."""
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
        """Advance the clock in steps, and run due calls and ready descriptors after each."""
        end = self.seconds() + seconds
        while (left := end - self.seconds()) > 0:
            self.advance(min(left, step))
            self.run()

    def _end(self, descriptor: Any, reason: Exception | None, *, reading: bool) -> None:
        """Notify a descriptor of the end of the connection or of its input."""
        if reason is None:
            return
        self.removeReader(descriptor)
        if reading and isinstance(reason, ConnectionDone):
            descriptor.readConnectionLost(Failure(reason))
        else:
            self.removeWriter(descriptor)
            descriptor.connectionLost(Failure(reason))

    def connect(self, factory: Factory, host: str = "127.0.0.1") -> socket.socket:
        """Connect a client to a server factory over loopback; return the client socket.

        :param host: address of the client as seen by the server.
        """
        with socket.create_server(("127.0.0.1", 0)) as listening:
            # Set before the handshake, when both ends negotiate window sizes.
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
