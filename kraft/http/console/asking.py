"""Asks brokers for their views (`kraft.broker.views`): at most once in `FRESH_S` each, whoever and however many look.

The own broker is asked directly, the others over the connections that brokers have between each other, which are opened
when somebody looks first. A broker that does not answer in time has no view, and nobody waits longer for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.handlers.broker_views import VIEW_VERSION, view_answer, view_request
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.server import BrokerServer
from kraft.broker.views.view_error import ViewError
from kraft.broker.views.views import merged
from kraft.http.snapshots import NodeParts

FRESH_S: Final = 1.9
"""Less than the two seconds between two ticks of a stream."""
TIMEOUT_S: Final = 1.5
KEPT_MAX: Final = 256
CLIENT_ID: Final = "console"
RESPONSE_MAX_BYTES: Final = 64 * 1024 * 1024
Document = dict[str, Any]
T = TypeVar("T")


class Remembered(Generic[T]):
    """What takes a while to find out, for as long as it is fresh; asked for again meanwhile, it is found out once."""

    def __init__(self, fresh_s: float = FRESH_S, kept_max: int = KEPT_MAX) -> None:
        self._fresh_s = fresh_s
        self._kept_max = kept_max
        self._tasks: dict[str, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, key: str, find: Callable[[], Awaitable[T]]) -> T:
        """Raises what `find` raises."""
        now_s = asyncio.get_running_loop().time()
        known = self._tasks.get(key)
        if known is None or (known[1].done() and known[0] <= now_s):
            for old in [
                one for one, (until_s, task) in self._tasks.items() if task.done() and until_s <= now_s
            ]:
                del self._tasks[old]  # or what somebody looked at once would stay in memory
            while len(self._tasks) >= self._kept_max:
                self._tasks.pop(next(iter(self._tasks)))
            task = asyncio.ensure_future(find())
            task.add_done_callback(_look_at_error)
            known = self._tasks[key] = (now_s + self._fresh_s, task)
        return await asyncio.shield(known[1])

    async def close(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _look_at_error(task: asyncio.Task[Any]) -> None:
    """Nobody may be waiting any more for what failed."""
    if not task.cancelled():
        task.exception()


class Asking:
    """Of one node."""

    def __init__(self, node: NodeParts) -> None:
        self._node = node
        self._connections: dict[int, PeerConnection] = {}
        self._connections_of: BrokerServer | None = None
        self._views: Remembered[Document | None] = Remembered()

    @property
    def why_not(self) -> str | None:
        """Why nothing can be measured here; None if it can."""
        if not self._node.config.is_broker:
            return (
                "this node is a controller only: ask a broker's console for sizes, offsets, rates and groups"
            )
        broker = self._node.broker
        if broker is None or broker.views is None:
            return "this broker is starting, or stopping"
        return None

    async def view(self, broker_id: int, view: str, args: Mapping[str, Any] | None = None) -> Document | None:
        """One view of one broker; None: it does not tell."""
        arguments = args or {}
        key = f"{broker_id} {view} {json.dumps(arguments)}"
        return await self._views.get(key, lambda: self._ask(broker_id, view, arguments))

    async def views(
        self, brokers: Iterable[int], view: str, args: Mapping[str, Any] | None = None
    ) -> dict[int, Document | None]:
        """The same view of several brokers, at the same time."""
        asked = list(brokers)
        found = await asyncio.gather(*(self.view(broker_id, view, args) for broker_id in asked))
        return dict(zip(asked, found, strict=True))

    async def _ask(self, broker_id: int, view: str, args: Mapping[str, Any]) -> Document | None:
        broker = self._node.broker
        if broker is None or broker.views is None:
            return None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if broker_id == self._node.config.node_id:
                    return merged(await broker.views.tell(view, args))
                answer = await self._connection(broker, broker_id).request(
                    view_request(view, args), VIEW_VERSION, timeout_s=TIMEOUT_S
                )
                return merged(await view_answer(answer))
        except (LeaderUnavailable, ViewError, TimeoutError):
            return None

    def _connection(self, broker: BrokerServer, broker_id: int) -> PeerConnection:
        if self._connections_of is not broker:
            self._close_connections()
            self._connections_of = broker
        known = broker.metadata.image.brokers
        for gone in [one for one in self._connections if one not in known]:
            self._connections.pop(gone).close()
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = broker.peer(broker_id, CLIENT_ID, RESPONSE_MAX_BYTES)
        return connection

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def close(self) -> None:
        await self._views.close()
        self._close_connections()
