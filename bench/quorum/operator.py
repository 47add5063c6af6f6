"""A test client of the quorum: it plays the brokers, creates topics, and asks for the leader.

It plays brokers by their registrations and heartbeats alone. All calls are signed and go through
`quorum.rpc.client`, as a broker's do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from bench.errors import BenchError
from bench.quorum.voters import Voters
from quorum.metadata.features import supported_ranges
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import Listener
from quorum.rpc import message_codec
from quorum.rpc.client import ControllerChannel, RpcClient
from quorum.rpc.messages import (
    AlterConfigsRequest,
    ConfigChange,
    ConfigResourceChange,
    CreateTopicsRequest,
    FetchMetadataRequest,
    HeartbeatRequest,
    NewTopic,
    RegisterBrokerRequest,
)

CALL_TIMEOUT_S = 30.0
HEARTBEAT_S = 0.5
"""A quarter of the brokers' default, so that a heartbeat's waits are seen more often."""
NO_ERROR = "NONE"


class Operator:
    """Calls the active controller. Used as `async with operator(…) as client`."""

    def __init__(self, quorum: Voters) -> None:
        self._cluster_id = quorum.cluster_id
        self._client = RpcClient(quorum.secret)
        self._channel = ControllerChannel(self._client, quorum.addresses, random.Random(1))
        self._epochs: dict[int, int] = {}
        self._hearts: dict[int, asyncio.Task[None]] = {}
        self.slowest_heartbeat_s = 0.0
        self.fenced: list[int] = []
        """Played brokers that were fenced without having asked for it."""

    async def close(self) -> None:
        for heart in self._hearts.values():
            heart.cancel()
        await asyncio.gather(*self._hearts.values(), return_exceptions=True)
        await self._client.close()

    @property
    def leader(self) -> int:
        """The voter that answered last."""
        if self._channel.leader_id is None:
            raise BenchError("no controller has answered yet")
        return self._channel.leader_id

    async def call(self, request: Any, *, attempt_timeout_s: float | None = None) -> Any:
        """The active controller's answer to a request of `quorum.rpc.messages`. Raises RpcError."""
        body = message_codec.encode(request)
        answer = await self._channel.call(
            request.RPC.method, body, timeout_s=CALL_TIMEOUT_S, attempt_timeout_s=attempt_timeout_s
        )
        return message_codec.decode_response(request, answer).response

    # -- brokers

    async def play_brokers(self, broker_ids: Iterable[int]) -> None:
        """Registers brokers and keeps them alive; returns when all are unfenced."""
        for broker_id in broker_ids:
            request = RegisterBrokerRequest(
                broker_id=broker_id,
                incarnation_id=bytes([broker_id]) * 16,
                cluster_id=self._cluster_id,
                listeners=(Listener("PLAINTEXT", "127.0.0.1", 9000 + broker_id, "PLAINTEXT"),),
                features=supported_ranges(),
            )
            self._epochs[broker_id] = (await self.call(request)).broker_epoch
            if (await self._heartbeat(broker_id)).is_fenced:
                raise BenchError(f"broker {broker_id} is as far as its registration, and stays fenced")
            self._hearts[broker_id] = asyncio.create_task(self._beat(broker_id))

    async def fence(self, broker_id: int) -> None:
        """Stops a broker's heart and has it fenced; returns when the fencing and its consequences are committed."""
        self._hearts.pop(broker_id).cancel()
        if not (await self._heartbeat(broker_id, want_fence=True)).is_fenced:
            raise BenchError(f"broker {broker_id} asked to be fenced, and was not")

    async def _heartbeat(self, broker_id: int, *, want_fence: bool = False) -> Any:
        epoch = self._epochs[broker_id]
        return await self.call(HeartbeatRequest(broker_id, epoch, epoch, want_fence=want_fence))

    async def _beat(self, broker_id: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            if (await self._heartbeat(broker_id)).is_fenced:
                self.fenced.append(broker_id)
            self.slowest_heartbeat_s = max(self.slowest_heartbeat_s, loop.time() - began_s)
            await asyncio.sleep(HEARTBEAT_S)

    # -- topics

    async def create_topic(self, name: str, partitions: int, replication_factor: int) -> None:
        """Returns when the topic is committed. Raises BenchError, RpcError."""
        answer = await self.call(CreateTopicsRequest((NewTopic(name, partitions, replication_factor),)))
        if answer.topics[0].error != NO_ERROR:
            raise BenchError(f"topic {name}: {answer.topics[0].message}")

    async def change_topic(
        self, name: str, retention_ms: int, *, attempt_timeout_s: float | None = None
    ) -> None:
        """One small proposal: returns when it is committed. Raises BenchError, RpcError."""
        change = ConfigResourceChange("topic", name, (ConfigChange("retention.ms", str(retention_ms)),))
        answer = await self.call(AlterConfigsRequest((change,)), attempt_timeout_s=attempt_timeout_s)
        if answer.resources[0].error != NO_ERROR:
            raise BenchError(f"topic {name}: {answer.resources[0].message}")

    async def image_bytes(self) -> bytes:
        """The committed image, encoded, as an empty broker gets it."""
        answer = await self.call(FetchMetadataRequest(node_id=1, epoch=-1, offset=-1, max_wait_ms=0))
        if answer.snapshot is None:
            raise BenchError("the controller still has all records in memory, and sent no image")
        return bytes(answer.snapshot)

    async def image(self) -> MetadataImage:
        return MetadataImage.decode(await self.image_bytes())


@asynccontextmanager
async def operator(quorum: Voters) -> AsyncIterator[Operator]:
    """A client of a running quorum; its brokers' hearts stop on leaving."""
    client = Operator(quorum)
    try:
        yield client
    finally:
        await client.close()
