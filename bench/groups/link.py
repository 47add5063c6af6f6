"""One connection to a broker for members of raw protocol: requests pipelined, answers decoded."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, Final

from bench.errors import BenchError
from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import FindCoordinatorRequest

CONNECT_S: Final = 5.0
COORDINATOR_S: Final = 30.0
RETRY_S: Final = 0.05
Address = tuple[str, int]
_SOON: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Link:
    """Answers come in the order of the requests. A connection that is lost fails all that wait: ConnectionError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[tuple[ApiKey, int, asyncio.Future[Any]]] = deque()
        self._number = 0
        self._is_lost = False
        self._reading = asyncio.create_task(self._read())

    @staticmethod
    async def open(address: Address) -> Link:
        """Raises OSError."""
        async with asyncio.timeout(CONNECT_S):
            return Link(*await asyncio.open_connection(*address))

    def send(self, message: Message, version: int) -> asyncio.Future[Any]:
        """The future of the answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._is_lost:
            future.set_exception(ConnectionError("the connection is lost"))
            return future
        self._number += 1
        frame = encode_request_frame(message, version, correlation_id=self._number, client_id="bench")
        self._waiting.append((message.API_KEY, version, future))
        self._writer.write(frame)
        return future

    async def _read(self) -> None:
        try:
            while True:
                (length,) = struct.unpack(">i", await self._reader.readexactly(4))
                frame = await self._reader.readexactly(length)
                api_key, version, future = self._waiting.popleft()
                _, position = decode_response_header(api_key, version, frame)
                if not future.done():
                    future.set_result(decode_response(api_key, version, frame, position))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._fail(f"the broker closed the connection: {error}")

    def _fail(self, reason: str) -> None:
        self._is_lost = True
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionError(reason))
        self._waiting.clear()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._fail("closed")
        self._writer.close()


async def coordinator_of(group: str, brokers: list[Address]) -> Address:
    """The coordinator that any of the brokers names, once one does. Raises BenchError."""
    deadline_s = asyncio.get_running_loop().time() + COORDINATOR_S
    while asyncio.get_running_loop().time() < deadline_s:
        for address in brokers:
            try:
                link = await Link.open(address)
            except (OSError, TimeoutError):
                continue
            try:
                answer = await link.send(FindCoordinatorRequest(coordinator_keys=[group]), 4)
            except ConnectionError:
                continue
            finally:
                await link.close()
            found = answer.coordinators[0]
            if found.error_code == ErrorCode.NONE:
                return found.host, found.port
        await asyncio.sleep(RETRY_S)
    raise BenchError(f"no broker named a coordinator of {group} within {COORDINATOR_S:g} s")


def is_passing(code: int) -> bool:
    """Whether a coordinator's answer is one that a client waits out."""
    return code in _SOON
