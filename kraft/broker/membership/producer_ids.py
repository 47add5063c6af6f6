"""Producer ids, handed out from blocks that the controller allocates to this broker (KIP-730).

A block is used up before the next is asked for; ids left over at the end of a process are never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraft.broker.membership.controller_client import ControllerClient
from quorum.rpc.envelope import RpcUnavailable
from quorum.rpc.messages import AllocateProducerIdsRequest

ALLOCATION_TIMEOUT_S = 5.0


class ProducerIds:
    """The current block of one broker."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], controller: ControllerClient) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._next = 0
        self._end = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        """A producer id that nobody else gets. Raises RpcError when the controller gives no block.

        Who waits for a block, or for others that wait for one, waits ALLOCATION_TIMEOUT_S in all.
        """
        try:
            async with asyncio.timeout(ALLOCATION_TIMEOUT_S), self._allocating:
                if self._next >= self._end:
                    await self._allocate()
                self._next += 1
                return self._next - 1
        except TimeoutError as error:
            raise RpcUnavailable(
                f"no block of producer ids was allocated in {ALLOCATION_TIMEOUT_S:g} s"
            ) from error

    async def _allocate(self) -> None:
        block = await self._controller.call(
            AllocateProducerIdsRequest(self._broker_id, self._broker_epoch()),
            timeout_s=ALLOCATION_TIMEOUT_S,
            attempt_timeout_s=ALLOCATION_TIMEOUT_S / 3,  # a paused controller is not waited for
        )
        if block.count <= 0:
            raise RpcUnavailable(f"the controller allocated {block.count} producer ids")
        self._next, self._end = block.first, block.first + block.count
