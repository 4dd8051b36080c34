"""A TCP proxy that fails on command.

Lives here: forwarding, and the ways in which it does not. Does not live here: when, and what for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from lab.ports import Port

_CHUNK = 64 * 1024
_TIMEOUT = 60.0
_DROP = 0.1


@dataclass(eq=False)
class _Link:
    """One client's connection and the one made for it."""

    client: asyncio.StreamWriter
    upstream: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]]


class Proxy:
    """Forwards between clients and one address, until told to misbehave.

    All commands return when they have taken effect. They concern the connections of the moment;
    new ones are forwarded as usual, except while paused or refusing.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._left: int | None = None
        self._drop_bytes = 0
        self._delay = 0.0
        self._damage: Callable[[bytes], bytes] | None = None
        self._damaged = 0
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self.host = "127.0.0.1"
        # While it refuses, no connection of anybody's may take the port.
        self._port = Port()
        self.port = self._port.number
        self.forwarded = 0  # bytes to clients
        self._server: asyncio.Server | None = None
        self.accept()

    def accept(self) -> None:
        """Listen (again); the port stays the same."""
        self._do(self._listen())

    def refuse(self) -> None:
        """Let new connections fail with "connection refused"; existing ones go on."""
        self._do(self._stop_listening())

    def pause(self) -> None:
        """Forward nothing more; connections stay open, and what comes in waits."""
        self._do(self._set_flow(on=False))

    def resume(self) -> None:
        """Forward again, beginning with what waited."""
        self._do(self._set_flow(on=True))

    def drip(self, count: int) -> None:
        """Send clients so many bytes every tenth of a second; 0: all that there is again."""
        self._drop_bytes = count

    def slow_down(self, seconds: float) -> None:
        """Hold each segment back for so long on its way to a client; 0: no more."""
        self._delay = seconds

    def damage(self, how: Callable[[bytes], bytes] | None, count: int) -> None:
        """Pass so many of the next segments to clients through a function; None: no more."""
        self._damage, self._damaged = how, count

    def finish(self) -> None:
        """End all connections as a server does that stops, on both sides: nothing is reset."""
        self._do(self._finish())

    def cut(self) -> None:
        """Reset all connections, on both sides."""
        self._do(self._cut())

    def cut_after(self, count: int) -> None:
        """Reset all connections once `count` more bytes went to clients."""
        self._do(self._limit(count))

    def half_open(self) -> None:
        """Drop the connections to the server; the clients' stay open and hear nothing more."""
        self._do(self._half_open())

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._links)

    def close(self) -> None:
        """End everything, the thread too."""
        self._do(self._stop_listening())
        self._do(self._cut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT)
        self._loop.close()
        self._port.release()

    def _do(self, command: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(command, self._loop).result(_TIMEOUT)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, self.host, self.port)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _set_flow(self, *, on: bool) -> None:
        (self._flowing.set if on else self._flowing.clear)()

    async def _limit(self, count: int) -> None:
        self._left = count

    async def _finish(self) -> None:
        for link in list(self._links):
            self._links.discard(link)
            for task in link.tasks:
                task.cancel()
            await asyncio.gather(*link.tasks, return_exceptions=True)
            link.client.close()
            link.upstream.close()

    async def _cut(self) -> None:
        for link in list(self._links):
            await self._drop(link)
        self._left = None

    async def _half_open(self) -> None:
        for link in self._links:
            for task in link.tasks:
                task.cancel()
            _reset(link.upstream)

    async def _drop(self, link: _Link) -> None:
        self._links.discard(link)
        current = asyncio.current_task()
        others = [task for task in link.tasks if task is not current]
        for task in others:
            task.cancel()
        _reset(link.client)
        _reset(link.upstream)
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            from_server, upstream = await asyncio.open_connection(*self._target)
        except OSError:  # the server is down: so is the proxy, for this client
            _reset(client)
            return
        link = _Link(client, upstream, [])
        self._links.add(link)
        link.tasks = [
            self._loop.create_task(self._pump(link, reader, upstream, to_client=False)),
            self._loop.create_task(self._pump(link, from_server, client, to_client=True)),
        ]

    async def _pump(
        self,
        link: _Link,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        to_client: bool,
    ) -> None:
        try:
            while data := await source.read(_CHUNK):
                await self._flowing.wait()
                if to_client:
                    await asyncio.sleep(self._delay)
                    data = self._as_damaged(data)
                if to_client and not await self._within_limit(data, sink):
                    return
                while to_client and self._drop_bytes and data:
                    drop, data = data[: self._drop_bytes], data[self._drop_bytes :]
                    sink.write(drop)
                    await sink.drain()
                    await asyncio.sleep(_DROP)
                sink.write(data)
                await sink.drain()
                self.forwarded += len(data) if to_client else 0
        except OSError:  # either side is gone: pass that on below
            pass
        await self._drop(link)

    def _as_damaged(self, data: bytes) -> bytes:
        if self._damage is None or self._damaged == 0:
            return data
        self._damaged -= 1
        return self._damage(data)

    async def _within_limit(self, data: bytes, sink: asyncio.StreamWriter) -> bool:
        """Count `data` against `cut_after`; at the limit send what still fits and cut."""
        if self._left is None:
            return True
        if len(data) < self._left:
            self._left -= len(data)
            return True
        sink.write(data[: self._left])
        with contextlib.suppress(OSError):
            await sink.drain()
        self.forwarded += self._left
        await self._cut()
        return False


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset, not an end."""
    end = writer.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
