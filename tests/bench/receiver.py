"""A receiver in a process of its own: prints its port, then for every line read when requests came.

Its argument is the seconds after which it answers, 0 by default.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class _Talk(asyncio.Protocol):
    """One connection; a request is counted when its head comes, and answered when it is whole."""

    def __init__(self, seen: list[float], seconds: float) -> None:
        self._seen = seen
        self._seconds = seconds
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, rest = self._data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(rest) < length:
                return
            self._data = rest[length:]
            self._seen.append(time.time())
            if self._seconds:
                asyncio.get_running_loop().call_later(self._seconds, self._transport.write, _ANSWER)
            else:
                self._transport.write(_ANSWER)


async def main() -> None:
    """Serve until the standard input ends."""
    seen: list[float] = []
    seconds = float((sys.argv[1:] or ["0"])[0])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Talk(seen, seconds), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(seen), flush=True)  # noqa: T201
        seen.clear()


if __name__ == "__main__":
    asyncio.run(main())
