"""What the console reads, of a running cluster: each node tells the same, and only what one may see."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from confluent_kafka import Consumer, TopicPartition

from kraft.http.console.access import PRINCIPAL
from kraft.http.console.routes import Console
from kraft.http.console.streams import KEEP_OPEN
from kraft.network.request_times import PhaseTimes
from kraft.protocol.api import AclOperation, ResourceType
from kraft.security.super_users import STANDARD_AUTHORIZER
from kraft.testing import cluster
from quorum.metadata.acls import ALLOW, CLUSTER_NAME, LITERAL, Acl
from quorum.rpc.messages import NewTopic
from tests.support.node_processes import until
from tests.support.real_clients import LIBRARIES, QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

DOCS = Path(__file__).parents[2] / "docs" / "console-api.md"
PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "metrics.groups.interval.ms": "600000",  # sooner only because somebody watches
}


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(3, PROPERTIES) as made:
        yield made


def shown(running: ThreadedCluster, path: str, node_id: int = 1) -> Any:
    status, content_type, body = running.get(node_id, path)
    assert (status, content_type) == (200, "application/json"), body
    return json.loads(body)


def refused(running: ThreadedCluster, path: str, status: int) -> str:
    found, content_type, body = running.get(1, path)
    assert (found, content_type) == (status, "application/json"), body
    sentence: str = json.loads(body)["error"]
    return sentence


def test_each_path_is_documented_and_each_documented_path_is_served(running: ThreadedCluster) -> None:
    documented = set(re.findall(r"^## `(/api/[^`]+)`", DOCS.read_text(), re.MULTILINE))
    server = cast(Any, running.cluster.nodes[1].http)
    served = {resource.canonical for resource in server._runner.app.router.resources()}
    assert {path for path in served if path.startswith("/api/")} - {"/api/cluster"} == documented
    for path in documented:
        if path == "/api/events" or "/messages" in path:
            continue  # streams, and what has tests of its own
        real = path.format(name="__consumer_offsets", group_id="nobody", id=1)
        assert running.get(1, real)[0] in (200, 404), path


def test_the_overview_is_the_same_on_each_node(running: ThreadedCluster) -> None:
    def healthy(node_id: int) -> Any:
        document = shown(running, "/api/overview", node_id)
        return (
            document if not document["problems"] and document["rates"]["requests_per_s"] is not None else None
        )

    documents = [until(lambda node_id=node_id: healthy(node_id), "all is well") for node_id in (1, 2, 3)]
    for document in documents:
        assert document["measured"] is True
        assert [broker["id"] for broker in document["brokers"]] == [1, 2, 3]
        assert {broker["state"] for broker in document["brokers"]} == {"running"}
        assert all(broker["disk_total_bytes"] > 0 for broker in document["brokers"])
        assert sum(broker["is_controller"] for broker in document["brokers"]) == 1
        assert len(document["quorum"]["voters"]) == 3
        assert len(document["history"]["seconds"]["series"]["bytes_in_per_s"]) == 60
        assert document["principal"] is None
    assert len({document["cluster_id"] for document in documents}) == 1


def test_a_topic_with_its_partitions_wherever_they_are_led(running: ThreadedCluster) -> None:
    topic = running.create_topic("console", partitions=3)
    LIBRARIES[0].produce(running.bootstrap, topic, {0: [b"x" * 100] * 5, 1: [b"x"] * 7, 2: [b"x"] * 9})

    def measured() -> Any:
        found = shown(running, f"/api/topics/{topic}?sort=log_end_offset&order=desc&page_size=2")
        ends = [row["high_watermark"] for row in found["partition_rows"]]
        lags = [one["lag"] for row in found["partition_rows"] for one in row["replica_states"]]
        return found if ends == [9, 7] and set(lags) == {0} and found["records"] == 21 else None

    document = until(measured, "every replica has every record")
    assert (document["total"], document["partitions"], document["replication_factor"]) == (3, 3, 3)
    assert document["size_bytes"] > 500
    for row in document["partition_rows"]:
        assert sorted(row["isr"]) == [1, 2, 3]
        assert [one["broker"] for one in row["replica_states"]] == row["replicas"]
        assert all(one["size_bytes"] == row["size_bytes"] for one in row["replica_states"])
        assert row["states"] == []
    configs = {config["name"]: config for config in document["configs"]}
    assert configs["cleanup.policy"]["source"] == "DEFAULT_CONFIG"
    listed = shown(running, f"/api/topics?q={topic.upper()}&sort=records&order=desc")
    assert [one["name"] for one in listed["topics"]] == [topic]
    assert listed["topics"][0]["records"] == 21


def test_groups_are_measured_while_somebody_looks(running: ThreadedCluster) -> None:
    topic, group = running.create_topic("grouped", partitions=1), "console-group"
    LIBRARIES[0].produce(running.bootstrap, topic, {0: [b"x"] * 10})
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": group, "client.id": "my-app", **QUIET}
    )
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "it is assigned")
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)

    def lagging() -> Any:
        found = shown(running, f"/api/groups/{group}", node_id=2)
        return found if found["lag"] == 6 else None

    document = until(lagging, "the lag is measured")
    assert (document["type"], document["state"], document["members"]) == ("classic", "Stable", 1)
    (member,) = document["member_rows"]
    assert (member["client_id"], member["subscribed_topics"]) == ("my-app", [topic])
    assert member["assignment"] == [{"topic": topic, "partitions": [0]}]
    (row,) = document["partition_rows"]
    assert (row["offset"], row["log_end_offset"], row["lag"], row["member_id"]) == (
        4,
        10,
        6,
        member["member_id"],
    )
    assert [lag for lag in document["history"]["lag"] if lag is not None][-1] == 6
    (listed,) = shown(running, f"/api/groups?q={group}", node_id=3)["groups"]
    assert listed["lag"] == 6
    clients = [
        client
        for broker_id in (1, 2, 3)
        for client in shown(running, f"/api/brokers/{broker_id}")["clients"]
        if client["client_id"] == "my-app"
    ]
    assert clients
    assert all(client["software_name"] == "confluent-kafka-python" for client in clients)
    consumer.close()


def test_a_broker_with_its_requests_configs_and_disks(running: ThreadedCluster) -> None:
    for broker_id in (1, 2):  # itself, and another one
        document = shown(running, f"/api/brokers/{broker_id}")
        assert {request["api"] for request in document["requests"]} >= {"Fetch", "ApiVersions"}
        (disk,) = document["log_dirs"]
        assert disk["path"] == str(running.cluster.data_directory(broker_id))
        configs = {config["name"]: config for config in document["configs"]}
        assert configs["node.id"]["value"] == str(broker_id)
        assert configs["controller.listener.secret"] == configs["controller.listener.secret"] | {
            "value": None, "is_sensitive": True,
        }  # fmt: skip
        assert (document["loop_lag_ms"] is not None) == (broker_id == 1)


def test_metadata_as_a_tree_and_as_a_log(running: ThreadedCluster) -> None:
    topic = running.create_topic("in-the-tree")
    path = f"/api/metadata?path=/topics/by-name/{topic}/0/data"
    value = until(lambda: running.get(1, path)[0] == 200 and shown(running, path)["value"], "it is there")
    assert value["leader"] in (1, 2, 3)
    log = shown(running, "/api/metadata/log?limit=500")
    names = [
        one["fields"]["name"]
        for entry in log["entries"]
        for one in entry["records"]
        if one["type"] == "Topic"
    ]
    assert topic in names
    assert shown(running, f"/api/metadata/log?after={log['offset']}")["offset"] >= log["offset"]


def test_what_is_asked_for_wrongly(running: ThreadedCluster) -> None:
    assert refused(running, "/api/topics?page=0", 400).startswith("page='0' is not a number")
    assert refused(running, "/api/topics?internal=maybe", 400) == "internal='maybe' is neither true nor false"
    assert refused(running, "/api/topics/nope", 404) == "there is no topic 'nope'"
    assert refused(running, "/api/groups/nope", 404) == "there is no group 'nope'"
    assert refused(running, "/api/brokers/9", 404) == "no broker 9 is registered"
    assert refused(running, "/api/metadata?path=/nope", 404) == "there is nothing at '/nope'"
    assert refused(running, "/api/events?topics=nope", 400).startswith("there is no topic 'nope'")


def test_every_answer_is_protected(running: ThreadedCluster) -> None:
    server = running.cluster.nodes[1].http
    assert server is not None
    for path in ("/api/overview", "/nope", "/metrics", "/api/topics/nope", "/static/nope.js"):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            connection.request("GET", path)
            headers = connection.getresponse().headers
        assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    for forged in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            connection.request("GET", "/api/events", headers=forged)
            assert connection.getresponse().status == 403


class Stream:
    """The events of one tab."""

    def __init__(self, running: ThreadedCluster, topics: str) -> None:
        server = running.cluster.nodes[1].http
        assert server is not None
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
        self._connection.request("GET", f"/api/events?topics={topics}")
        self._answer = self._connection.getresponse()
        assert self._answer.headers.get_content_type() == "text/event-stream"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def next(self, wanted: str) -> Any:
        """The data of the next event of that name."""
        event = ""
        for line in self._answer:
            text = line.decode().rstrip()
            if text.startswith("event: "):
                event = text.removeprefix("event: ")
            elif text.startswith("data: ") and event == wanted:
                return json.loads(text.removeprefix("data: "))
        raise AssertionError("the stream has ended")


def test_a_stream_tells_what_its_tab_shows_and_ends_with_it(running: ThreadedCluster) -> None:
    server = cast(Any, running.cluster.nodes[1].http)
    streams = server._console.streams
    before = streams.count
    with Stream(running, "overview,metadata,groups,group:nobody") as stream:
        first = stream.next("metadata")
        assert first["entries"] == []
        assert "history" not in stream.next("overview")
        assert stream.next("groups")["unanswered"] == []
        assert stream.next("group") == {"group_id": "nobody", "error": "there is no group 'nobody'"}
        assert streams.count == before + 1
        topic = running.create_topic("while-watching")
        names: list[str] = []
        while topic not in names:
            told = stream.next("metadata")
            names = [one["fields"].get("name", "") for entry in told["entries"] for one in entry["records"]]
        assert stream.next("overview")["totals"]["topics"] >= 1
    until(lambda: streams.count == before, "the stream is over")


# Rights

RIGHTS = {
    "User:sees-one": [
        (ResourceType.TOPIC, "one", AclOperation.DESCRIBE),
        (ResourceType.GROUP, "readers", AclOperation.DESCRIBE),
    ],
    "User:operator": [
        (ResourceType.TOPIC, "one", AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE),
    ],
    "User:admin": [
        (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE),
        (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE_CONFIGS),
    ],
}
METADATA = ("/api/metadata", "/api/metadata/log")


@web.middleware
async def log_in(request: web.Request, handler: Any) -> web.StreamResponse:
    """As a login does: who it is, is told by the request's header here."""
    if "X-User" in request.headers:
        request[PRINCIPAL] = request.headers["X-User"]
    response: web.StreamResponse = await handler(request)
    return response


async def test_nobody_sees_what_no_acl_lets_them_see() -> None:
    properties = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:root",
        "num.partitions": "1",
    }
    async with cluster(1, properties) as made:
        node: Any = made.nodes[1]
        authorizer = node.broker.authorization.authorizer
        for principal in RIGHTS:
            change_rights(authorizer, principal, are_there=True)
        await node.broker.services.topic_creation.ensure([NewTopic("one"), NewTopic("two")], 5.0)
        app = web.Application(middlewares=[log_in])
        console = Console(node, lambda: 0, PhaseTimes())
        console.add_routes(app)
        app[KEEP_OPEN] = lambda request: None
        async with TestClient(TestServer(app)) as client:

            async def get(user: str, path: str) -> tuple[int, Any]:
                async with client.get(path, headers={"X-User": user}) as response:
                    return response.status, await response.json()

            status, topics = await get("User:sees-one", "/api/topics")
            assert (status, [one["name"] for one in topics["topics"]], topics["total"]) == (200, ["one"], 1)
            assert (await get("User:root", "/api/topics"))[1]["total"] == 2
            status, one = await get("User:sees-one", "/api/topics/one")
            assert (status, one["configs"]) == (200, None), "its configs need DESCRIBE_CONFIGS"
            assert await get("User:sees-one", "/api/topics/two") == (
                403,
                {"error": "User:sees-one may not DESCRIBE topic two: an ACL has to allow it"},
            )
            assert (await get("User:sees-one", "/api/groups/other"))[0] == 403
            assert (await get("User:sees-one", "/api/groups/readers"))[0] == 404
            for path in ("/api/brokers", "/api/brokers/1", "/api/quorum", *METADATA):
                assert await get("User:sees-one", path) == (
                    403,
                    {"error": "User:sees-one may not DESCRIBE the cluster: an ACL has to allow it"},
                )
                assert (await get("User:operator", path))[0] == (403 if path in METADATA else 200)
                assert (await get("User:admin", path))[0] == 200
            overview = (await get("User:sees-one", "/api/overview"))[1]
            assert (overview["brokers"], overview["quorum"], overview["principal"]) == (
                [],
                None,
                "User:sees-one",
            )
            assert set(overview["totals"].values()) == {None}
            assert (await get("User:operator", "/api/overview"))[1]["totals"]["partitions"] == 2
            assert (await get("User:operator", "/api/brokers/1"))[1]["configs"] is None
            assert (await get("User:root", "/api/brokers/1"))[1]["configs"]
            await see_no_more_than_rights_go(client, authorizer, node)
        await console.close()


def change_rights(authorizer: Any, principal: str, *, are_there: bool) -> None:
    for resource, name, operation in RIGHTS[principal]:
        acl = Acl(resource, name, LITERAL, principal, "*", operation, ALLOW)
        authorizer._patterns[resource].change(acl, is_there=are_there)
    authorizer._remembered.clear()


async def see_no_more_than_rights_go(client: TestClient[Any, Any], authorizer: Any, node: Any) -> None:
    """Streams of rights that are taken back."""

    def stream(user: str, topics: str) -> Any:
        return client.get(f"/api/events?topics={topics}", headers={"X-User": user})

    async def next_event(stream: Any) -> tuple[str, Any]:
        event = ""
        while True:
            line = (await stream.content.readline()).decode()
            assert line, "the stream has ended"
            if line.startswith("event: "):
                event = line[7:].strip()
            elif line.startswith("data: "):
                return event, json.loads(line[6:])

    async with (
        asyncio.timeout(60),
        stream("User:admin", "metadata") as metadata,
        stream("User:sees-one", "group:readers") as group,
        stream("User:operator", "overview,metadata") as overview,
    ):
        assert (await next_event(metadata))[1]["entries"] == []
        assert (await next_event(group))[1]["error"] == "there is no group 'readers'"
        event, refused = await next_event(overview)
        assert (event, refused["topic"]) == ("refused", "metadata")
        assert (await next_event(overview))[1]["quorum"] is not None
        for principal in RIGHTS:
            change_rights(authorizer, principal, are_there=False)
        await node.broker.services.topic_creation.ensure([NewTopic("three")], 5.0)
        assert b"three" not in await metadata.content.read()
        await group.content.read()
        while (await next_event(overview))[1]["quorum"] is not None:
            pass
