"""Messages in the console: what real producers wrote, asked of a node that may lead none of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from kraft.http.console.access import Access
from kraft.http.messages.batches import Opened
from kraft.http.messages.routes import READERS_MAX
from kraft.http.messages.scanning import Scan
from kraft.http.messages.searching import PROGRESS_S
from kraft.http.messages.tailing import BEHIND_MAX
from kraft.security.super_users import STANDARD_AUTHORIZER
from tests.support.node_processes import until
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import CALL_S, ThreadedCluster, threaded_cluster

SCRIPT = b"<script>document.title='owned'</script>"
PAGE = b"<!doctype html><html><body onload=alert(1)>hello</body></html>"
MEGABYTE = b"\x00\x01<b>" + bytes(1024 * 1024 - 5)
NOT_TEXT = b"caf\xe9 \xff\xfe"
Event = tuple[str, Any]


def produce(
    running: ThreadedCluster,
    topic: str,
    *records: Mapping[str, Any],
    **settings: Any,
) -> None:
    """Each record is what confluent's `produce` takes besides the topic; all of them are acknowledged."""
    producer = Producer(
        {"bootstrap.servers": running.bootstrap, "message.max.bytes": 2_000_000, **QUIET, **settings}
    )
    failures: list[Any] = []
    for record in records:
        producer.produce(
            topic,
            **{"partition": 0, **record},
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(CALL_S) == 0
    assert failures == []


def path_of(topic: str, kind: str = "", **params: Any) -> str:
    return f"/api/topics/{topic}/messages{kind}?{urlencode({k.rstrip('_'): v for k, v in params.items()})}"


def page(running: ThreadedCluster, topic: str, node_id: int = 1, **params: Any) -> Any:
    status, content_type, body = running.get(node_id, path_of(topic, **params))
    assert (status, content_type) == (200, "application/json"), body
    return json.loads(body)


def another_than(node_id: int) -> int:
    return node_id % 3 + 1


def texts(answer: Any, field: str = "value") -> list[str]:
    return [message[field]["text"] for message in answer["messages"]]


@contextlib.contextmanager
def events(running: ThreadedCluster, path: str, node_id: int = 1) -> Iterator[Iterator[Event]]:
    """An event stream, as a browser reads it; the browser goes away with the block."""
    server = running.cluster.nodes[node_id].http
    assert server is not None
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=CALL_S)

    def read(answer: http.client.HTTPResponse) -> Iterator[Event]:
        name = ""
        for line in answer:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])

    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream")
        with contextlib.closing(answer):
            yield read(answer)


@pytest.fixture(scope="module")
def odd(shared_cluster: ThreadedCluster) -> str:
    """A topic of records that a page could stumble over."""
    topic = shared_cluster.create_topic("odd", max_message_bytes="3000000")
    produce(
        shared_cluster,
        topic,
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {
            "key": SCRIPT,
            "value": PAGE,
            "headers": [("a", None), ("a", b""), ("<i>", SCRIPT), ("b", NOT_TEXT)],
        },
        {"value": NOT_TEXT},
        {"value": "žluťoučký kůň ".encode() * 100},
        **{"compression.type": "zstd"},
    )
    produce(shared_cluster, topic, {"value": MEGABYTE})
    return topic


def test_null_is_not_empty_and_bytes_are_not_text(shared_cluster: ThreadedCluster, odd: str) -> None:
    for node_id in (1, 2, 3):
        messages = page(shared_cluster, odd, node_id, offset="earliest")["messages"]
        assert [one["offset"] for one in messages] == [0, 1, 2, 3, 4, 5]
        empty = {"size_bytes": 0, "shown_bytes": 0, "text": ""}
        assert (messages[0]["key"], messages[0]["value"], messages[0]["headers"]) == (None, None, [])
        assert (messages[1]["key"], messages[1]["value"]) == (empty, empty)
        assert messages[2]["key"]["text"].encode() == SCRIPT
        assert messages[2]["value"]["text"].encode() == PAGE
        assert [(one["name"], one["value"]) for one in messages[2]["headers"][:2]] == [
            ("a", None),
            ("a", empty),
        ]
        assert messages[2]["headers"][2] == {
            "name": "<i>",
            "value": {"size_bytes": len(SCRIPT), "shown_bytes": len(SCRIPT), "text": SCRIPT.decode()},
        }
        assert messages[2]["headers"][3]["value"]["hex"] == NOT_TEXT.hex()
        assert messages[3]["value"] == {"size_bytes": 7, "shown_bytes": 7, "hex": NOT_TEXT.hex()}
        assert messages[3]["compression"] == "zstd"
        assert messages[3]["timestamp_type"] == "CreateTime"


def test_large_values_are_cut_and_whole_on_demand(shared_cluster: ThreadedCluster, odd: str) -> None:
    listed = page(shared_cluster, odd, offset="earliest", field_bytes=101)["messages"]
    cut = listed[4]["value"]
    assert cut["size_bytes"] == len("žluťoučký kůň ".encode()) * 100
    assert 98 <= cut["shown_bytes"] <= 101
    assert cut["text"].encode() == ("žluťoučký kůň ".encode() * 100)[: cut["shown_bytes"]]
    assert listed[5]["value"] == {
        "size_bytes": len(MEGABYTE),
        "shown_bytes": 101,
        "text": MEGABYTE[:101].decode(),
    }
    (whole,) = page(shared_cluster, odd, offset=5, limit=1, field_bytes=1024 * 1024)["messages"]
    assert whole["value"]["text"].encode() == MEGABYTE
    path = path_of(odd, "/download", format="raw", partition=0, offset=5)
    assert shared_cluster.get(2, path) == (200, "application/octet-stream", MEGABYTE)


def test_a_record_is_downloaded_and_never_shown(shared_cluster: ThreadedCluster, odd: str) -> None:
    server = shared_cluster.cluster.nodes[1].http
    assert server is not None
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=CALL_S)
    with contextlib.closing(connection):
        connection.request("GET", path_of(odd, "/download", format="raw", partition=0, offset=2))
        answer = connection.getresponse()
        assert answer.read() == PAGE
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{odd}-0-2.value"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    key = path_of(odd, "/download", format="raw", partition=0, offset=2, field="key")
    assert shared_cluster.get(1, key)[2] == SCRIPT
    null = shared_cluster.get(1, path_of(odd, "/download", format="raw", partition=0, offset=0))
    assert null[0] == 404
    assert b"null" in null[2]
    assert shared_cluster.get(1, path_of(odd, "/download", format="raw", partition=0, offset=77))[0] == 404


def test_pages_forward_backward_and_by_time(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("pages", partitions=3)
    produce(
        shared_cluster,
        topic,
        *({"partition": n % 3, "value": b"%d" % n, "timestamp": 1_000_000 + n} for n in range(30)),
    )
    newest = page(shared_cluster, topic, limit=7)
    assert texts(newest) == [str(n) for n in range(23, 30)]
    assert {one["partition"]: one["end_offset"] for one in newest["partitions"]} == {0: 10, 1: 10, 2: 10}
    before = ",".join(f"{one['partition']}:{one['first_offset']}" for one in newest["partitions"])
    older = page(shared_cluster, topic, limit=7, before=before)
    assert texts(older) == [str(n) for n in range(16, 23)]

    oldest = page(shared_cluster, topic, limit=8, offset="earliest")
    assert texts(oldest) == [str(n) for n in range(8)]
    on = ",".join(f"{one['partition']}:{one['next_offset']}" for one in oldest["partitions"])
    assert texts(page(shared_cluster, topic, limit=8, offset=on)) == [str(n) for n in range(8, 16)]

    assert texts(page(shared_cluster, topic, timestamp_ms=1_000_027)) == ["27", "28", "29"]
    assert page(shared_cluster, topic, timestamp_ms=2_000_000)["messages"] == []
    assert texts(page(shared_cluster, topic, partition=1, offset=8)) == ["25", "28"]


def transactions(running: ThreadedCluster, topic: str) -> None:
    """Offsets 0-1 aborted, 2 its marker, 3 committed, 4 its marker, 5 open."""
    settings = {"bootstrap.servers": running.bootstrap, "transactional.id": topic, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(CALL_S)
    for values, end in (((b"lost", b"lost"), "abort"), ((b"kept",), "commit"), ((b"open",), None)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(CALL_S) == 0
        if end is not None:
            getattr(producer, f"{end}_transaction")(CALL_S)


def test_aborted_and_open_transactions_are_not_shown(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("transactions")
    transactions(shared_cluster, topic)

    def committed() -> Any:
        return page(shared_cluster, topic, offset="earliest")

    until(lambda: committed()["partitions"][0]["end_offset"] == 5, "the markers are replicated")
    answer = committed()
    assert texts(answer) == ["kept"]
    assert answer["messages"][0]["is_transactional"]
    assert answer["isolation_level"] == "read_committed"
    assert (answer["skipped"]["aborted"], answer["skipped"]["control"]) == (2, 2)
    newest = page(shared_cluster, topic, limit=1)
    assert texts(newest) == ["kept"], "what is before markers and aborted records is found"
    every = page(shared_cluster, topic, offset="earliest", isolation_level="read_uncommitted")
    assert texts(every) == ["lost", "lost", "kept", "open"]
    assert every["skipped"]["aborted"] == 0


def test_a_search_tells_what_it_found_and_what_it_passed(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("search", partitions=2)
    produce(
        shared_cluster,
        topic,
        *({"partition": n % 2, "key": b"k%d" % n, "value": b"x" * 100} for n in range(500)),
        {"partition": 1, "value": b"a Needle", "headers": [("h", b"1")]},
        {"partition": 0, "value": b"x", "headers": [("needles", b"\x00\xff")]},
        **{"compression.type": "lz4"},
    )
    with events(shared_cluster, path_of(topic, "/search", q="needle", ignore_case="true")) as stream:
        told = list(stream)
    found = [message for name, data in told if name == "matches" for message in data["messages"]]
    assert sorted((one["partition"], one["offset"]) for one in found) == [(0, 250), (1, 250)]
    name, done = told[-1]
    assert (name, done["reason"], done["records"], done["matched"]) == ("done", "end", 502, 2)
    assert done["next_offsets"] == {"0": 251, "1": 251}
    for params, offsets in (
        ({"q": "needle"}, [250]),
        ({"q_hex": "00ff"}, [250]),
        ({"q": "k499", "in": "key"}, [249]),
        ({"q": "k499", "in": "value"}, []),
    ):
        with events(shared_cluster, path_of(topic, "/search", **params), node_id=2) as stream:
            told = list(stream)
        assert [
            one["offset"] for name, data in told if name == "matches" for one in data["messages"]
        ] == offsets


def test_a_search_ends_at_its_bounds_and_can_go_on(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("bounds")
    for _ in range(4):
        produce(shared_cluster, topic, *({"value": b"%04d" % n + bytes(1000)} for n in range(500)))
    with events(shared_cluster, path_of(topic, "/search", q="0", limit=3)) as stream:
        done = list(stream)[-1][1]
    assert (done["reason"], done["matched"], done["next_offsets"]) == ("limit", 3, {"0": 3})
    assert done["offsets_left"] == 1997
    with events(shared_cluster, path_of(topic, "/search", q="none", max_bytes=600_000)) as stream:
        done = list(stream)[-1][1]
    assert done["reason"] == "bytes"
    assert 600_000 <= done["bytes"] <= 6_000_000
    assert done["offsets_left"] == 2000 - done["next_offsets"]["0"]


def test_a_search_ends_when_the_browser_goes(
    shared_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One through a topic that has no end, lest it be over by itself."""

    async def endless(_: Scan) -> AsyncIterator[Sequence[Opened]]:
        while True:
            await asyncio.sleep(PROGRESS_S)
            yield ()

    monkeypatch.setattr(Scan, "rounds", endless)
    topic = shared_cluster.create_topic("gone")
    messages = messages_of(shared_cluster, 1)
    with events(shared_cluster, path_of(topic, "/search", q="none", max_s=120)) as stream:
        assert next(stream)[0] == "progress"
        assert messages.readers == 1
    until(lambda: messages.readers == 0, "the search has ended")


def messages_of(running: ThreadedCluster, node_id: int) -> Any:
    server = running.cluster.nodes[node_id].http
    assert server is not None
    return server.messages


def test_a_tail_shows_what_comes(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("tail", partitions=2)
    produce(shared_cluster, topic, {"value": b"before"})
    for node_id in (1, 2):
        with events(shared_cluster, path_of(topic, "/tail"), node_id) as stream:
            name, data = next(stream)
            assert (name, set(data["next_offsets"])) == ("start", {"0", "1"})
            produce(shared_cluster, topic, {"value": b"after"}, {"partition": 1, "value": b"there"})
            seen: set[str] = set()
            while seen != {"after", "there"}:
                name, data = next(stream)
                assert name == "messages"
                seen |= set(texts(data))
    messages = messages_of(shared_cluster, 1)
    until(lambda: messages.readers == 0, "the tail has ended")


def test_a_tail_takes_in_partitions_that_are_added(shared_cluster: ThreadedCluster) -> None:
    """From their beginning: whatever they hold came after the tail's start. A tail of some partitions keeps to them."""
    topic = shared_cluster.create_topic("grows", partitions=1)
    with (
        events(shared_cluster, path_of(topic, "/tail")) as of_all,
        events(shared_cluster, path_of(topic, "/tail", partition="0"), node_id=2) as of_one,
    ):
        assert next(of_all)[1] == {"next_offsets": {"0": 0}, "partitions_left_out": 0}
        next(of_one)
        admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap, **QUIET})
        grown = admin.create_partitions([NewPartitions(topic, 3)], request_timeout=CALL_S)
        grown[topic].result(CALL_S)
        shared_cluster.wait_in_sync(topic)
        produce(shared_cluster, topic, *({"partition": n, "value": b"in %d" % n} for n in (2, 1, 0)))
        seen: set[str] = set()
        while seen != {"in 0", "in 1", "in 2"}:
            name, data = next(of_all)
            assert name == "messages"
            seen |= set(texts(data))
        shown: list[str] = []
        while not shown:
            shown = texts(next(of_one)[1])
        assert shown == ["in 0"]


def test_a_tail_that_is_filtered_tells_the_rest_in_numbers(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("filtered")
    with events(shared_cluster, path_of(topic, "/tail", q="yes")) as stream:
        next(stream)
        produce(
            shared_cluster, topic, *({"value": b"yes %d" % n if n % 10 == 0 else b"no"} for n in range(100))
        )
        seen: list[str] = []
        while len(seen) < 10:
            seen += texts(next(stream)[1])
    assert seen == [f"yes {n}" for n in range(0, 100, 10)]


def test_a_tail_that_falls_behind_goes_on_near_the_end(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("behind")
    with events(shared_cluster, path_of(topic, "/tail")) as stream:
        next(stream)
        produce(shared_cluster, topic, *({"value": b"%d" % n} for n in range(BEHIND_MAX * 2)))
        shown, left = [], 0
        while not shown or shown[-1] != str(BEHIND_MAX * 2 - 1):
            name, data = next(stream)
            assert name == "messages"
            assert len(data["messages"]) <= 1_000
            shown += texts(data)
            left += data["not_shown"] + data["passed"]
        assert len(shown) + left == BEHIND_MAX * 2
    assert [int(one) for one in shown] == sorted(int(one) for one in shown)


def test_a_download_has_every_record_and_says_where_it_ends(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("download", partitions=2)
    produce(shared_cluster, topic, *({"partition": n % 2, "value": b"%d " % n * 2000} for n in range(40)))
    status, content_type, body = shared_cluster.get(1, path_of(topic, "/download", offset="earliest"))
    assert (status, content_type) == (200, "application/x-ndjson")
    *lines, end = [json.loads(line) for line in body.splitlines()]
    assert sorted(int(one["value"]["text"].split()[0]) for one in lines) == list(range(40))
    assert all(one["value"]["size_bytes"] == len(one["value"]["text"]) for one in lines)
    assert (end["end"], end["next_offsets"], end["errors"]) == ("end", {"0": 20, "1": 20}, {})
    body = shared_cluster.get(1, path_of(topic, "/download", offset="earliest", partition=1, limit=5))[2]
    *lines, end = [json.loads(line) for line in body.splitlines()]
    assert [one["offset"] for one in lines] == [0, 1, 2, 3, 4]
    assert (end["end"], end["next_offsets"]) == ("limit", {"1": 5})
    body = shared_cluster.get(1, path_of(topic, "/download", limit=1))[2]
    assert len(body.splitlines()) == 2, "fewer records than partitions are no reason to send none"


def test_what_cannot_be_answered_is_said(shared_cluster: ThreadedCluster, odd: str) -> None:
    assert shared_cluster.get(1, "/api/topics/none/messages")[0] == 404
    assert shared_cluster.get_json(1, path_of(odd, limit=0)) == {
        "error": "limit has to be a whole number, 1 to 500, not '0'"
    }
    status, _, body = shared_cluster.get(1, path_of(odd, partition=7))
    assert (status, json.loads(body)["error"]) == (400, "there is no partition 7: the topic has 1, from 0 on")
    assert shared_cluster.get(1, path_of(odd, "/search"))[0] == 400
    behind = page(shared_cluster, odd, offset=100)
    assert (behind["messages"], behind["partitions"][0]["next_offset"]) == ([], 6)


def test_only_so_many_read_at_a_time(shared_cluster: ThreadedCluster, odd: str) -> None:
    messages = messages_of(shared_cluster, 3)
    with contextlib.ExitStack() as tails:
        for _ in range(READERS_MAX):
            next(tails.enter_context(events(shared_cluster, path_of(odd, "/tail"), 3)))
        status, _, body = shared_cluster.get(3, path_of(odd))
        assert status == 503
        assert "readers of messages" in json.loads(body)["error"]
    until(lambda: messages.readers == 0, "the tails have ended")
    assert shared_cluster.get(3, path_of(odd))[0] == 200


def test_a_partition_without_a_leader_concerns_no_other(own_cluster: ThreadedCluster) -> None:
    topic = own_cluster.create_topic("half", partitions=6, replication_factor=1)
    produce(own_cluster, topic, *({"partition": n, "value": b"%d" % n} for n in range(6)))
    gone = {n for n in range(6) if own_cluster.leader(topic, n) == 3}
    assert gone
    own_cluster.kill(3)
    own_cluster.wait_seen(3, live=False)
    answer = page(own_cluster, topic, offset="earliest")
    assert {int(text) for text in texts(answer)} == set(range(6)) - gone
    assert {one["partition"] for one in answer["partitions"] if one["error"]} == gone
    assert {one["error"] for one in answer["partitions"]} == {None, "it has no leader now"}
    with events(own_cluster, path_of(topic, "/search", q="9")) as stream:
        done = list(stream)[-1][1]
    assert (done["reason"], set(done["errors"])) == ("errors", {str(n) for n in gone})
    *_, end = own_cluster.get(1, path_of(topic, "/download", offset="earliest"))[2].splitlines()
    assert json.loads(end)["end"] == "errors"


def test_messages_are_for_those_who_may_read_the_topic() -> None:
    """A right that is taken back ends a tail, and nothing of the records is told any more."""
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with threaded_cluster(1, properties) as running:
        topic = running.create_topic("secret", replication_factor=1)
        produce(running, topic, {"value": b"x"})
        assert texts(page(running, topic)) == ["x"]
        with events(running, path_of(topic, "/tail")) as stream:
            next(stream)
            deny(running, topic, AclOperation.READ)
            *_, last = stream
            assert last == ("refused", {"error": f"topic {topic} may not be read any more"})
        for kind, params in (
            ("", {}),
            ("/tail", {}),
            ("/search", {"q": "x"}),
            ("/download", {}),
            ("/download", {"format": "raw", "partition": 0, "offset": 0}),
        ):
            status, _, body = running.get(1, path_of(topic, kind, **params))
            assert status == 403
            assert b"may not READ topic" in body
            assert b'"value"' not in body


def test_what_is_being_sent_ends_with_the_right(
    shared_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = shared_cluster.create_topic("half-secret")
    produce(shared_cluster, topic, {"value": b"x"})
    answers: list[bool] = []

    def allows_once(*_: object) -> bool:
        return bool(answers) and answers.pop()

    monkeypatch.setattr(Access, "allows", allows_once)
    answers.append(True)
    with events(shared_cluster, path_of(topic, "/search", q="x")) as stream:
        assert list(stream) == []
    answers.append(True)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        shared_cluster.get(1, path_of(topic, "/download", offset="earliest"))


def deny(running: ThreadedCluster, topic: str, operation: AclOperation) -> None:
    everybody = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:*",
        "*",
        operation,
        AclPermissionType.DENY,
    )
    for made in running.admin.create_acls([everybody]).values():
        made.result(CALL_S)
