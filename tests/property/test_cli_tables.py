"""What a table of the command line prints at 80 columns, and piped, is what --json says, for random clusters."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kraft.cli.log_dirs import sizes_table
from kraft.cli.quorum.view import QuorumNode, QuorumView, replication_table, status_lines
from kraft.cli.reassign.commands import moves_table
from kraft.cli.shared.documents import age_text
from kraft.cli.shared.tables import Rows, piped_lines, terminal_lines
from kraft.cli.topics.describe import partitions_table
from kraft.cli.topics.offsets import offsets_table

COLUMNS = 80
NAMES = st.text("abz019._-", min_size=1, max_size=60).filter(lambda name: name != "-")
IDS = st.integers(1, 9) | st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 999) | st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 99) | st.integers(0, 2**31 - 1)


def at_80_columns(table: Rows) -> list[dict[str, str]]:
    """The rows by column, as a person reads them off the screen; a column that is not there is empty."""
    lines = [line.plain for line in terminal_lines(table, COLUMNS)]
    if not lines:
        return []
    header = [(match.group(), match.start()) for match in re.finditer(r"\S+( \S+)*", lines[0])]
    if header[1][0] not in table.columns:  # one value a line
        blocks = "\n".join(lines).split("\n\n")
        return [dict(re.split(r" {2,}", line, maxsplit=1) for line in block.split("\n")) for block in blocks]
    assert all(len(line) <= COLUMNS for line in lines)
    ends = [start for _, start in header[1:]] + [COLUMNS]
    return [
        {name: line[start:end].strip() for (name, start), end in zip(header, ends, strict=True)}
        for line in lines[1:]
    ]


def piped(table: Rows) -> list[dict[str, str]]:
    """The rows by column, as awk reads them."""
    lines = [line.split() for line in piped_lines(table)]
    return [
        {name: "" if word == "-" else word for name, word in zip(lines[0], words, strict=True)}
        for words in lines[1:]
    ]


def ids(text: str | None) -> list[int]:
    return [int(word) for word in (text or "").split(",") if word]


def ends(text: str) -> dict[str, int]:
    return {
        broker: int(offset) for broker, _, offset in (word.partition(":") for word in text.split(",") if word)
    }


def number(text: str) -> int:
    return -1 if text in ("none", "?", "") else int(text)


@st.composite
def partitions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The partitions of one topic, as `topics describe --json` tells of them."""
    brokers = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    scale = draw(st.sampled_from([IDS, OFFSETS]))
    some = st.lists(st.sampled_from(brokers), unique=True)
    found = []
    for index in range(draw(st.integers(1, 4))):
        replicas = draw(st.lists(st.sampled_from(brokers), min_size=1, unique=True))
        answering = draw(st.lists(st.sampled_from(replicas), unique=True))
        found.append(
            {
                "partition": index * draw(st.sampled_from([1, 1000])),
                "leader": draw(st.sampled_from([-1, *brokers])),
                "leader_epoch": draw(EPOCHS),
                "replicas": replicas,
                "isr": draw(st.lists(st.sampled_from(replicas), unique=True)),
                "elr": draw(some),
                "offline": draw(some),
                "hw": draw(st.just(-1) | scale),
                "leo": {str(broker): draw(scale) for broker in answering},
            }
        )
    return found


def check_lag(text: str, replicas: list[int], log_ends: dict[str, int], leader: int) -> None:
    """Every replica's lag is the one that its log end says."""
    told = dict(word.partition(":")[::2] for word in text.split(",")) if text != "0" else {}
    assert told.keys() <= {str(replica) for replica in replicas}
    base = log_ends[str(leader)] if str(leader) in log_ends else max(log_ends.values(), default=0)
    for replica in map(str, replicas):
        if replica not in log_ends:
            assert told[replica] == "?"
        else:
            assert int(told.get(replica, 0)) == max(0, base - log_ends[replica])


THREE_LONG = {
    "partition": 0, "leader": 1, "leader_epoch": 7, "replicas": [1, 2, 3], "isr": [1, 2, 3], "elr": [],
    "offline": [], "hw": 123_456_789_012, "leo": dict.fromkeys("123", 123_456_789_012),
}  # fmt: skip


@given(name=NAMES, found=partitions())
@example(name="events", found=[THREE_LONG])
def test_topics_describe(name: str, found: list[dict[str, Any]]) -> None:
    said = json.loads(json.dumps({"name": name, "topic_id": "x", "configs": {}, "partitions": found}))
    screen = at_80_columns(partitions_table([said], wide=False, names_topics=False))
    plain = piped(partitions_table([said, said], wide=True, names_topics=True))
    assert len(plain) == 2 * len(screen) == 2 * len(found)
    for partition, shown, words in zip(said["partitions"], screen, plain, strict=False):
        assert words["topic"] == name
        assert ends(words["log-ends"]) == partition["leo"]
        for row, watermark in ((shown, "high watermark"), (words, "high-watermark")):
            assert int(row["partition"]) == partition["partition"]
            assert number(row["leader"]) == partition["leader"]
            assert int(row["epoch"]) == partition["leader_epoch"]
            for column in ("replicas", "isr", "elr", "offline"):
                assert ids(row.get(column)) == partition[column]
            assert number(row[watermark]) == partition["hw"]
            check_lag(row["lag"], partition["replicas"], partition["leo"], partition["leader"])


def test_three_replicas_with_long_log_ends_fit_beside_each_other() -> None:
    said = {"name": "events", "partitions": [THREE_LONG]}
    lines = list(terminal_lines(partitions_table([said], wide=False, names_topics=False), COLUMNS))
    assert len(lines) == 2


@given(name=NAMES, found=partitions())
def test_reassign_list(name: str, found: list[dict[str, Any]]) -> None:
    said = [
        {"topic": name, "partition": one["partition"], "replicas": one["replicas"], "adding": one["isr"],
         "removing": one["elr"], "leo": one["leo"]}
        for one in found
    ]  # fmt: skip
    screen, plain = at_80_columns(moves_table(said, wide=False)), piped(moves_table(said, wide=True))
    assert len(plain) == len(screen) == len(said)
    for move, shown, words in zip(said, screen, plain, strict=True):
        assert ends(words["log-ends"]) == move["leo"]
        for row in (shown, words):
            assert row["partition"] == f"{name}-{move['partition']}"
            for column in ("replicas", "adding", "removing"):
                assert ids(row.get(column)) == move[column]
            check_lag(row["lag"], move["replicas"], move["leo"], -1)


TIMES = st.just(-1) | st.integers(0, 4 * 10**12)


@given(
    name=NAMES,
    rows=st.lists(
        st.fixed_dictionaries(
            {"partition": st.integers(0, 2**31 - 1), "offset": st.just(-1) | OFFSETS, "timestamp": TIMES}
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_topics_offsets(name: str, rows: list[dict[str, int]]) -> None:
    table = offsets_table(name, rows)
    epoch = datetime.fromisoformat("1970-01-01T00:00:00Z")
    for shown in (at_80_columns(table), piped(table)):
        assert len(shown) == len(rows)
        for row, cells in zip(rows, shown, strict=True):
            time = cells.get("timestamp", "")
            ms = (datetime.fromisoformat(time) - epoch) // timedelta(milliseconds=1) if time else -1
            assert (cells["topic"], int(cells["partition"])) == (name, row["partition"])
            assert (number(cells.get("offset", "")), ms) == (row["offset"], row["timestamp"])


SIZES = st.integers(0, 2**20) | st.integers(0, 2**63 - 1)
DIRECTORIES = st.fixed_dictionaries(
    {
        "path": NAMES.map("/".__add__),
        "total_bytes": st.just(-1) | SIZES,
        "usable_bytes": st.just(-1) | SIZES,
        "partitions": st.lists(
            st.fixed_dictionaries(
                {
                    "topic": st.sampled_from(["t", "u", "events"]),
                    "partition": st.integers(0, 9),
                    "size_bytes": SIZES,
                }
            ),
            max_size=6,
        ),
    }
)


@given(
    brokers=st.lists(
        st.fixed_dictionaries(
            {"id": IDS, "dirs": st.lists(DIRECTORIES, max_size=3, unique_by=lambda d: d["path"])}
        ),
        max_size=3,
        unique_by=lambda one: one["id"],
    )
)
def test_log_dirs(brokers: list[dict[str, Any]]) -> None:
    expected = {}
    for broker in brokers:
        for directory in broker["dirs"]:
            room = (directory["usable_bytes"], directory["total_bytes"])
            sizes: dict[str, list[int]] = {} if directory["partitions"] else {"": []}
            for one in directory["partitions"]:
                sizes.setdefault(one["topic"], []).append(one["size_bytes"])
            for topic, found in sizes.items():
                expected[broker["id"], directory["path"], topic] = (*room, len(found), sum(found))
    shown = {
        (int(row["broker"]), row["directory"], row["topic"]): (
            number(row["usable"]), number(row["total"]), int(row["partitions"]), int(row["size"]),
        )
        for row in piped(sizes_table(brokers, wide=True))
    }  # fmt: skip
    assert shown == expected
    for broker in brokers:
        for directory in broker["dirs"]:
            one = [{"id": broker["id"], "dirs": [directory]}]
            screen = at_80_columns(sizes_table(one, wide=False))
            topics = [(row["topic"], int(row["partitions"])) for row in screen]
            told = [(topic, counts[2]) for (_, path, topic), counts in expected.items()
                    if topic and path == directory["path"] and _ == broker["id"]]  # fmt: skip
            assert sorted(topics) == sorted(told)


NODES = st.builds(QuorumNode, IDS, st.binary(min_size=16, max_size=16), st.just(-1) | OFFSETS, TIMES, TIMES)


@given(
    voters=st.lists(NODES, min_size=1, max_size=5, unique_by=lambda node: node.node_id),
    observers=st.lists(NODES, max_size=3),
    chosen=st.integers(-1, 4),
    now_ms=st.integers(0, 5 * 10**12),
    data=st.data(),
)
def test_quorum_describe(
    voters: list[QuorumNode], observers: list[QuorumNode], chosen: int, now_ms: int, data: st.DataObject
) -> None:
    leader_id = voters[chosen].node_id if 0 <= chosen < len(voters) else -1
    endpoints = {node.node_id: [f"CONTROLLER://host-{node.node_id}:9093"] for node in voters}
    view = QuorumView("id", leader_id, data.draw(EPOCHS), data.draw(OFFSETS), voters, observers, endpoints)
    rows = json.loads(json.dumps(view.replication()))
    exact = replication_table(rows, wide=True, ages_at_ms=None)
    plain = piped(exact)
    narrow = at_80_columns(replication_table(rows, wide=False, ages_at_ms=now_ms))
    assert len(plain) == len(narrow) == len(rows)
    for row, words, shown in zip(rows, plain, narrow, strict=True):
        assert words["DirectoryId"] == row["directory_id"]
        for cells in (words, shown):
            assert (int(cells["NodeId"]), cells["Status"]) == (row["node_id"], row["status"])
            assert (number(cells["LogEndOffset"]), number(cells["Lag"])) == (
                row["log_end_offset"],
                row["lag"],
            )
        for column, aged, key in (
            ("LastFetchTimestamp", "LastFetch", "last_fetch_timestamp"),
            ("LastCaughtUpTimestamp", "LastCaughtUp", "last_caught_up_timestamp"),
        ):
            assert number(words[column]) == row[key]
            age = shown.get(aged, "")
            assert age in (("", "?") if row[key] < 0 else (age_text(now_ms - row[key]),))
    status = json.loads(json.dumps(view.status()))
    lines = list(status_lines(status))
    told = {line[:24].strip(" :"): line[24:] for line in lines if line[0] != " "}
    assert number(told["LeaderId"]) == leader_id
    assert int(told["HighWatermark"]) == status["high_watermark"]
    assert number(told["MaxFollowerLag"]) == status["max_follower_lag"]
    listed = [line[24:].split() for line in lines[[line[:14] for line in lines].index("CurrentVoters:") :]]
    said = [
        [
            str(node["id"]),
            *node.get("endpoints", []),
            *([node["directoryId"]] if "directoryId" in node else []),
        ]
        for node in status["current_voters"] + (status["current_observers"] or [])
    ]
    assert listed == said + ([] if observers else [["none"]])
