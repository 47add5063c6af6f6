"""The paths of the console (docs/console-api.md): parameters in, rights asked for, documents out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from kraft.broker.server import BrokerServer
from kraft.http.console.access import ACCESS, Access, Decides, principal_of
from kraft.http.console.brokers import Brokers
from kraft.http.console.cluster import Cluster, ConsoleNode
from kraft.http.console.events import GROUP, Tell, Teller, topics_of
from kraft.http.console.groups import GROUP_SORTS, Groups, NoAnswerError
from kraft.http.console.metadata import Metadata
from kraft.http.console.overview import Overviews, Rights
from kraft.http.console.paging import PAGE_SIZE_MAX, QueryError, page_of, whole_number
from kraft.http.console.static import StaticFile, answer, console_files
from kraft.http.console.streams import StreamOver, Streams
from kraft.http.console.topics import PARTITION_SORTS, TOPIC_SORTS, Topics
from kraft.network.request_times import PhaseTimes
from kraft.protocol.api import AclOperation, ResourceType
from kraft.security.authorizer import StandardAuthorizer
from quorum.metadata.changes import ImageDiff
from quorum.metadata.image import EMPTY, MetadataImage

LOG_LIMIT: Final = 100
OFFSET_MAX: Final = 2**63 - 1
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_DESCRIBE = AclOperation.DESCRIBE
_CLUSTER, _TOPIC, _GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP


class Console:
    """Of one node. `add_routes` at the start, `close` at the end."""

    def __init__(self, node: ConsoleNode, now_ms: Callable[[], int], loop_lag: PhaseTimes) -> None:
        self._node = node
        self.access = Access(_Authorizers(node).current)
        self.cluster = Cluster(node, now_ms)
        self.topics = Topics(self.cluster)
        self.groups = Groups(self.cluster)
        self.brokers = Brokers(self.cluster, loop_lag)
        self.overviews = Overviews(self.cluster, self.brokers)
        self.metadata = Metadata(self.cluster)
        self.streams = Streams()

    def add_routes(self, app: web.Application) -> None:
        app[ACCESS] = self.access
        for path, handler in self.handlers().items():
            app.router.add_get(path, _answering(handler), allow_head=handler != self._events)

    def handlers(self) -> Mapping[str, Handler]:
        """By path; those of the API are in docs/console-api.md."""
        return {
            "/api/overview": self._overview,
            "/api/topics": self._topics,
            "/api/topics/{name}": self._topic,
            "/api/groups": self._groups,
            "/api/groups/{group_id}": self._group,
            "/api/brokers": self._brokers,
            "/api/brokers/{id}": self._broker,
            "/api/quorum": self._quorum,
            "/api/metadata": self._metadata,
            "/api/metadata/log": self._metadata_log,
            "/api/events": self._events,
            "/static/{name:.+}": self._static,
        }

    async def close(self) -> None:
        await self.streams.close()
        await self.overviews.close()
        await self.topics.close()
        await self.cluster.close()

    # -- rights

    def _may_see(self, request: web.Request, resource: ResourceType) -> Callable[[str], bool]:
        return lambda name: self.access.allows(request, _DESCRIBE, resource, name)

    def _rights(self, request: web.Request) -> Rights:
        return Rights(
            cluster=self.access.allows(request, _DESCRIBE, _CLUSTER),
            topic=self._may_see(request, _TOPIC),
            group=self._may_see(request, _GROUP),
            principal=None if self.access.is_open else principal_of(request),
        )

    # -- documents

    async def _overview(self, request: web.Request) -> web.Response:
        return web.json_response(await self.overviews.document(self._rights(request)))

    async def _topics(self, request: web.Request) -> web.Response:
        internal = request.query.get("internal", "true")
        if internal not in ("true", "false"):
            raise QueryError(f"internal={internal[:50]!r} is neither true nor false")
        page = page_of(request.query, TOPIC_SORTS, "name")
        may_see = self._may_see(request, _TOPIC)
        return web.json_response(await self.topics.listed(page, may_see, internal=internal == "true"))

    async def _topic(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.access.demand(request, _DESCRIBE, _TOPIC, name)
        page = page_of(request.query, PARTITION_SORTS, "partition")
        with_configs = self.access.allows(request, AclOperation.DESCRIBE_CONFIGS, _TOPIC, name)
        document = await self.topics.described(name, page, with_configs=with_configs)
        return _found(document, f"there is no topic {name[:255]!r}")

    async def _groups(self, request: web.Request) -> web.Response:
        page = page_of(request.query, GROUP_SORTS, "group_id")
        return web.json_response(await self.groups.listed(page, self._may_see(request, _GROUP)))

    async def _group(self, request: web.Request) -> web.Response:
        group_id = request.match_info["group_id"]
        self.access.demand(request, _DESCRIBE, _GROUP, group_id)
        document = await self.groups.described(group_id, self._may_see(request, _TOPIC))
        return _found(document, f"there is no group {group_id[:255]!r}")

    async def _brokers(self, request: web.Request) -> web.Response:
        self.access.demand(request, _DESCRIBE, _CLUSTER)
        return web.json_response(await self.brokers.listed())

    async def _broker(self, request: web.Request) -> web.Response:
        self.access.demand(request, _DESCRIBE, _CLUSTER)
        broker_id = whole_number(request.match_info, "id", -1, 0, 2**31 - 1)
        with_configs = self.access.allows(request, AclOperation.DESCRIBE_CONFIGS, _CLUSTER)
        document = await self.brokers.described(broker_id, with_configs=with_configs)
        return _found(document, f"no broker {broker_id} is registered")

    async def _quorum(self, request: web.Request) -> web.Response:
        self.access.demand(request, _DESCRIBE, _CLUSTER)
        document = await self.cluster.quorum()
        if document is None:
            raise NoAnswerError("no active controller answers")
        return web.json_response(document)

    def _demand_metadata(self, request: web.Request) -> None:
        """Configs are a part of the metadata."""
        self.access.demand(request, _DESCRIBE, _CLUSTER)
        self.access.demand(request, AclOperation.DESCRIBE_CONFIGS, _CLUSTER)

    async def _metadata(self, request: web.Request) -> web.Response:
        self._demand_metadata(request)
        path = request.query.get("path", "/")
        document = self.metadata.at(path, page_of(request.query, ("name",), "name"))
        return _found(document, f"there is nothing at {path[:255]!r}")

    async def _metadata_log(self, request: web.Request) -> web.Response:
        self._demand_metadata(request)
        after = whole_number(request.query, "after", -1, -1, OFFSET_MAX)
        limit = whole_number(request.query, "limit", LOG_LIMIT, 1, PAGE_SIZE_MAX)
        return web.json_response(await self.metadata.log(after, limit))

    # -- the stream

    async def _events(self, request: web.Request) -> web.StreamResponse:
        topics = topics_of(request.query.get("topics"))
        ticks: list[tuple[str, Tell]] = []
        refused: list[dict[str, str]] = []
        changes: Callable[[int | None], Awaitable[Any]] | None = None
        for topic in topics:
            try:
                if topic == "metadata":
                    self._demand_metadata(request)
                    changes = partial(self._changes, request)
                else:
                    ticks.append(self._tick(request, topic))
            except web.HTTPForbidden as error:
                refused.append({"topic": topic, "error": json.loads(error.text or "{}").get("error", "")})
        response: web.StreamResponse | None = None
        async with self.streams.open(request) as stream:
            response = stream.response
            for one in refused:
                await stream.send("refused", one)
            await Teller(stream, ticks, self.cluster.recent, changes).run()
        assert response is not None, "it was opened"
        return response

    def _tick(self, request: web.Request, topic: str) -> tuple[str, Tell]:
        """The event of a topic, and what tells it, as far as the rights go by then. Raises HTTPForbidden."""
        if topic == "overview":
            return "overview", lambda: self.overviews.document(self._rights(request), history=False)
        if topic == "groups":
            may_see = self._may_see(request, _GROUP)
            return "groups", lambda: self.groups.streamed(may_see)
        group_id = topic[len(GROUP) :]
        may_see_topic = self._may_see(request, _TOPIC)

        def demand() -> None:
            self.access.demand(request, _DESCRIBE, _GROUP, group_id)

        async def tell() -> Any:
            _or_end(demand)
            try:
                document = await self.groups.described(group_id, may_see_topic)
            except NoAnswerError as error:
                return {"group_id": group_id, "error": str(error)}
            if document is None:
                return {"group_id": group_id, "error": f"there is no group {group_id[:255]!r}"}
            document.pop("history", None)
            return document

        demand()
        return "group", tell

    async def _changes(self, request: web.Request, after: int | None) -> Any:
        _or_end(lambda: self._demand_metadata(request))
        if after is None:
            return {"offset": self.cluster.image.offset, "entries": []}
        log = await self.metadata.log(after, PAGE_SIZE_MAX)
        return {"offset": log["offset"], "entries": log["entries"]}

    # -- files

    async def _static(self, request: web.Request) -> web.Response:
        return answer(request, self.file(request.match_info["name"]))

    def file(self, name: str) -> StaticFile:
        """Raises HTTPNotFound."""
        file = console_files().get(name)
        if file is None:
            raise web.HTTPNotFound
        return file


class _Authorizers:
    """The authorizer of a node: its broker's, or one over the metadata of a node that is only a controller."""

    def __init__(self, node: ConsoleNode) -> None:
        self._node = node
        self._own: tuple[MetadataImage, StandardAuthorizer] | None = None

    def current(self) -> Decides | None:
        config = self._node.config
        broker: BrokerServer | None = self._node.broker
        if not config.get("authorizer.class.name"):
            return None
        if broker is not None and broker.authorization is not None:
            return broker.authorization.authorizer
        image = EMPTY if self._node.controller is None else self._node.controller.image
        if self._own is None or self._own[0].acls is not image.acls:
            authorizer = StandardAuthorizer(
                config.get("super.users"),
                allow_everyone_if_no_acl_found=config.get("allow.everyone.if.no.acl.found"),
            )
            authorizer.on_metadata(ImageDiff(EMPTY, image), image)
            self._own = (image, authorizer)
        return self._own[1]


def _or_end(demand: Callable[[], None]) -> None:
    """A right that was taken back ends the stream: its browser comes again, and is told why."""
    try:
        demand()
    except web.HTTPForbidden as error:
        raise StreamOver from error


def _found(document: Any, why_not: str) -> web.Response:
    if document is None:
        return web.json_response({"error": why_not}, status=404)
    return web.json_response(document)


def _answering(handler: Handler) -> Handler:
    """Wrong parameters and brokers that do not answer are told in a sentence."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except QueryError as error:
            return web.json_response({"error": str(error)}, status=400)
        except NoAnswerError as error:
            return web.json_response({"error": str(error)}, status=503)

    return handle
