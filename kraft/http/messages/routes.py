"""The paths `/api/topics/{name}/messages…`: who may read, how many at once, and what is answered to a wrong question.

Called by `kraft.http.app`. A reader costs the node memory and half a core at most, so that `READERS_MAX` of them run at
a time, whoever asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from aiohttp import web

from kraft.broker.server import BrokerServer
from kraft.http.console.access import ACCESS
from kraft.http.console.paging import QueryError
from kraft.http.console.streams import KEEP_OPEN, Streams, is_still_known
from kraft.http.messages.downloading import Download, headers, raw_field
from kraft.http.messages.leaders import TopicReads
from kraft.http.messages.pages import Page
from kraft.http.messages.queries import (
    RawQuery,
    chosen,
    download_query,
    page_query,
    search_query,
    tail_query,
)
from kraft.http.messages.searching import Search
from kraft.http.messages.tailing import Tail
from kraft.protocol.api import AclOperation, ResourceType
from partitions.ports import Executor
from quorum.metadata.image import TopicImage

READERS_MAX: Final = 8
PATH: Final = "/api/topics/{name}/messages"


class Refusal(Exception):
    """An answer that is none: its status, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class HasBroker(Protocol):
    """What is asked of a node."""

    @property
    def broker(self) -> BrokerServer | None: ...


def add_routes(app: web.Application, node: HasBroker, executor: Executor) -> Messages:
    """Adds the four paths; returns who answers them."""
    messages = Messages(node, executor)
    for path, handler in (
        (PATH, messages.page),
        (f"{PATH}/tail", messages.tail),
        (f"{PATH}/search", messages.search),
        (f"{PATH}/download", messages.download),
    ):
        app.router.add_get(path, _told(handler), allow_head=False)
    return messages


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _told(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except QueryError as error:
            return web.json_response({"error": str(error)}, status=400)
        except Refusal as refusal:
            return web.json_response({"error": str(refusal)}, status=refusal.status)

    return answer


class Messages:
    """The handlers of one node."""

    def __init__(self, node: HasBroker, executor: Executor) -> None:
        self._node = node
        self._executor = executor
        self._streams = Streams(READERS_MAX)
        self.readers = 0

    async def page(self, request: web.Request) -> web.StreamResponse:
        broker, topic = self._readable(request)
        query = page_query(request.query)
        chosen(query.selection.partitions, len(topic.partitions))
        with self._reader(broker, topic, query.selection.read_committed) as reads:
            body = await Page(reads, self._executor, query).read()
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def search(self, request: web.Request) -> web.StreamResponse:
        broker, topic = self._readable(request)
        query = search_query(request.query)
        chosen(query.selection.partitions, len(topic.partitions))
        with self._reader(broker, topic, query.selection.read_committed) as reads:
            async with self._streams.open(request, self._still_readable(request, topic)) as stream:
                await Search(reads, self._executor, query).run(stream)
        return stream.response

    async def tail(self, request: web.Request) -> web.StreamResponse:
        broker, topic = self._readable(request)
        query = tail_query(request.query)
        chosen(query.partitions, len(topic.partitions))

        is_allowed = self._still_readable(request, topic)
        with self._reader(broker, topic, query.read_committed) as reads:
            async with self._streams.open(request) as stream:
                await Tail(reads, self._executor, query, is_allowed).run(stream)
        return stream.response

    async def download(self, request: web.Request) -> web.StreamResponse:
        broker, topic = self._readable(request)
        query = download_query(request.query)
        if not isinstance(query, RawQuery):
            chosen(query.selection.partitions, len(topic.partitions))
            is_allowed = self._still_readable(request, topic)

            def keep_open() -> None:
                if not is_allowed() or not is_still_known(request):
                    raise ConnectionAbortedError("the right to read it was taken back")
                request.app[KEEP_OPEN](request)

            with self._reader(broker, topic, query.selection.read_committed) as reads:
                return await Download(reads, self._executor, query).run(request, keep_open)
        with self._reader(broker, topic, query.read_committed) as reads:
            found = await raw_field(reads, self._executor, query)
        if isinstance(found, str):
            raise Refusal(404, found)
        if found is None:
            raise Refusal(404, f"the {query.field} of this record is null")
        name = f"{topic.name}-{query.partition}-{query.offset}.{query.field}"
        return web.Response(body=found, headers=headers(name, "application/octet-stream"))

    def _readable(self, request: web.Request) -> tuple[BrokerServer, TopicImage]:
        """The topic, for whoever may read it. Raises Refusal, HTTPForbidden."""
        broker = self._node.broker
        if broker is None or broker.lifecycle is None:
            raise Refusal(
                503, "this node is no broker, or still starting: messages are read in a broker's console"
            )
        name = request.match_info["name"]
        request.app[ACCESS].demand(request, AclOperation.READ, ResourceType.TOPIC, name)
        topic = broker.metadata.image.topic(name)
        if topic is None:
            raise Refusal(404, f"there is no topic {name[:255]!r}")
        return broker, topic

    def _still_readable(self, request: web.Request, topic: TopicImage) -> Callable[[], bool]:
        """An ACL may be taken back while an answer is sent."""
        return lambda: request.app[ACCESS].allows(request, AclOperation.READ, ResourceType.TOPIC, topic.name)

    @contextmanager
    def _reader(self, broker: BrokerServer, topic: TopicImage, read_committed: bool) -> Iterator[TopicReads]:
        """One of a few. Raises Refusal."""
        if self.readers >= READERS_MAX:
            raise Refusal(
                503,
                f"{READERS_MAX} readers of messages run on this node already (tails, searches, downloads):"
                " end one, or ask another broker's console",
            )
        self.readers += 1
        reads = TopicReads(topic, broker.metadata, broker.peer, read_committed=read_committed)
        try:
            yield reads
        finally:
            self.readers -= 1
            reads.close()
