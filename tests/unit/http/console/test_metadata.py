"""The image as a tree in pages, and its newest changes: what is shown, and what never is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.http.console.metadata import ANSWER_RECORDS_MAX, RECORDS_MAX, Metadata, is_secret
from kraft.http.console.paging import Page
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import encode_records
from quorum.metadata.records import Config, Partition, Record, Topic, UserScramCredential
from quorum.recent_changes import RecentChanges
from quorum.rpc.messages import MetadataEntry

ALL = Page(1, 50, "name", False, "")
TOPIC_ID = bytes(15) + b"\x07"
SALT, STORED, SERVER = b"salt-salt-salt!!", b"k" * 32, b"s" * 32
RECORDS: list[Record] = [
    Topic("orders", TOPIC_ID),
    Partition(TOPIC_ID, 0, (1, 2), (1,), 1),
    Config("broker", "1", "ssl.keystore.password", "hunter2"),
    Config("topic", "orders", "retention.ms", "1000"),
    UserScramCredential("a/b%", 1, SALT, STORED, SERVER, 4096),
]


def image() -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    for record in RECORDS:
        delta.apply(record, 3, 1)
    return delta.finish(3, 1)


def metadata(recent: RecentChanges | None = None) -> Metadata:
    cluster: Any = SimpleNamespace(image=image(), recent=recent)
    return Metadata(cluster)


def test_the_root() -> None:
    document = metadata().at("/", ALL)
    assert document is not None
    assert (document["path"], document["value"], document["offset"]) == ("/", None, 3)
    names = {child["name"]: child for child in document["children"]}
    assert names["configs"] == {"name": "configs", "path": "/configs", "children": 2, "value": None}


def test_a_value_and_pages_of_children() -> None:
    found = metadata().at("/topics/by-name/orders/0/data", ALL)
    assert found is not None
    assert found["value"]["isr"] == [1]
    assert (found["total"], found["children"]) == (0, [])
    listed = metadata().at("/topics/by-name", ALL)
    assert listed is not None
    assert [(one["name"], one["children"]) for one in listed["children"]] == [("orders", 3)]
    page = metadata().at("topics/by-name/orders", ALL._replace(page_size=1, page=2))
    assert page is not None
    assert (page["total"], [one["name"] for one in page["children"]]) == (3, ["name"])
    assert page["children"][0]["value"] == "orders"
    wanted = metadata().at("/topics", ALL._replace(q="name"))
    assert wanted is not None
    assert [one["path"] for one in wanted["children"]] == ["/topics/by-name"]


@pytest.mark.parametrize(
    "path", ["/nope", "/topics/by-name/orders/0/data/leader", "/../etc/passwd", "/a" * 1000]
)
def test_a_path_that_is_not_there(path: str) -> None:
    assert metadata().at(path, ALL) is None


def test_names_with_slashes_are_found_by_the_paths_that_are_told() -> None:
    users = metadata().at("/scram/SCRAM-SHA-256", ALL)
    assert users is not None
    (user,) = users["children"]
    assert (user["name"], user["path"]) == ("a/b%", "/scram/SCRAM-SHA-256/a%2Fb%25")
    found = metadata().at(user["path"], ALL)
    assert found is not None
    assert found["value"] == {
        "salt": "(hidden)", "stored_key": "(hidden)", "server_key": "(hidden)", "iterations": 4096,
    }  # fmt: skip


def test_no_password_is_shown_wherever_one_looks() -> None:
    for path in ("/configs/broker/1", "/configs/broker/1/ssl.keystore.password"):
        assert "hunter2" not in repr(metadata().at(path, ALL))
    assert is_secret("listener.name.internal.ssl.key.password")
    assert not is_secret("retention.ms")


async def test_the_log_of_changes() -> None:
    recent = RecentChanges()
    recent.take([MetadataEntry(3, 1, encode_records(RECORDS)), MetadataEntry(4, 1, b"")], 1234)
    document = await metadata(recent).log(-1, 10)
    (entry,) = document["entries"]
    assert (document["offset"], document["oldest_offset"]) == (3, 3)
    assert (entry["offset"], entry["epoch"], entry["at_ms"]) == (3, 1, 1234)
    assert [one["type"] for one in entry["records"]] == [type(record).__name__ for record in RECORDS]
    assert entry["records"][0]["fields"]["name"] == "orders"
    shown = repr(document)
    for secret in ("hunter2", repr(SALT), "a2tr"):  # the last is how a key would begin in base64
        assert secret not in shown
    assert (await metadata(recent).log(3, 10))["entries"] == []
    assert await metadata(None).log(-1, 10) == {"offset": 3, "oldest_offset": None, "entries": []}


async def test_a_large_entry_is_cut() -> None:
    recent = RecentChanges()
    many = [Config("topic", f"t{number}", "retention.ms", "1") for number in range(250)]
    recent.take([MetadataEntry(5, 1, encode_records(many))], 1)
    (entry,) = (await metadata(recent).log(-1, 10))["entries"]
    assert len(entry["records"]) == 201
    assert entry["records"][-1] == {"type": "…", "fields": {"left_out": 50}}


def test_the_newest_are_kept_within_bounds() -> None:
    recent = RecentChanges(entries_max=3, bytes_max=100)
    recent.take([MetadataEntry(offset, 1, b"x" * 10) for offset in range(1, 6)], 1)
    assert recent.oldest_offset == 3
    assert [one.entry.offset for one in recent.after(-1, 10)] == [3, 4, 5]
    assert [one.entry.offset for one in recent.after(3, 1)] == [5], "the newest of them"
    recent.take([MetadataEntry(6, 1, b"x" * 1000)], 2)
    assert [one.entry.offset for one in recent.after(-1, 10)] == [6]


async def test_an_answer_has_so_many_records_whatever_came_at_once() -> None:
    """The newest first: ten thousand partitions that change at once make no answer of megabytes."""
    large = encode_records([Partition(TOPIC_ID, number, (1,), (1,), 1) for number in range(RECORDS_MAX * 2)])
    one = encode_records(RECORDS[:1])
    recent = RecentChanges()
    recent.take([MetadataEntry(offset, 1, large if offset % 2 else one) for offset in range(1, 13)], 1234)
    entries = (await metadata(recent).log(-1, 100))["entries"]
    assert [entry["offset"] for entry in entries] == list(range(1, 13))
    shown = [len(entry["records"]) for entry in entries]
    assert shown[-2:] == [RECORDS_MAX + 1, 1]
    assert ANSWER_RECORDS_MAX <= sum(shown) <= ANSWER_RECORDS_MAX + len(shown)
    assert entries[10]["records"][-1] == {"type": "…", "fields": {"left_out": RECORDS_MAX}}
    assert entries[0]["records"] == [{"type": "…", "fields": {"left_out": RECORDS_MAX * 2}}]
