"""A receiver process. It prints its port and, for every line of input, the arrival times of requests.

Its argument is the delay of responses in seconds (default: 0).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class _Talk(asyncio.Protocol):
    """A connection that records the arrival of each request and responds."""

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
    """Serve until the end of standard input."""
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
