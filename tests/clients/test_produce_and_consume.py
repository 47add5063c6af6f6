"""`kraft produce` and `kraft consume` as people know them from Kafka's console tools and kcat."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import CLIENTS

TOLD_WITHIN_S = 10
COMMAND_S = 120


def command(cluster: NodeProcesses, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kraft.cli.entry", *arguments, "--bootstrap-server", cluster.bootstrap]


def kraft(cluster: NodeProcesses, *arguments: str, stdin: bytes = b"", exit_code: int = 0) -> bytes:
    """Runs a command to its end; returns its standard output."""
    done = subprocess.run(
        command(cluster, *arguments), input=stdin, capture_output=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == exit_code, done.stderr.decode()
    return done.stdout


def consumed(cluster: NodeProcesses, *arguments: str) -> list[str]:
    """The lines that `kraft consume … --exit-at-end` prints, sorted."""
    return sorted(kraft(cluster, "consume", *arguments, "--exit-at-end").decode().splitlines())


def test_a_key_goes_where_java_sends_it(cluster: NodeProcesses) -> None:
    from kafka.partitioner.default import murmur2  # here, once its own warnings are behind it

    partitions = 5
    topic = cluster.create_topic("java-keys", partitions)
    keys = [
        b"",
        b"21",
        b"foobar",
        b"a-little-bit-long-string",
        "ä".encode(),
        *(b"k%d" % n for n in range(200)),
    ]
    data = b"".join(key + b"\tv\n" for key in keys)
    kraft(cluster, "produce", topic, "--key-separator", "\\t", stdin=data)
    lines = kraft(
        cluster, "consume", topic, "--from-beginning", "--exit-at-end", "--format", "%p %k"
    ).splitlines()
    found = {key: int(partition) for partition, _, key in (line.partition(b" ") for line in lines)}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys}
    assert len(set(found.values())) == partitions


@pytest.fixture
def now_ms() -> int:
    return int(time.time() * 1000)


def test_what_a_line_says_comes_back_as_json(cluster: NodeProcesses, now_ms: int) -> None:
    topic = cluster.create_topic("all-fields", 3)
    kraft(
        cluster, "produce", topic, "--headers-separator", "|", "--key-separator", ":", "--null", "NULL",
        "--header", "h=0", "--partition", "2", "--timestamp", str(now_ms), "--compression", "zstd",
        "--property", "client.id=tester", stdin=b"a=1,a=NULL|k:NULL\n|NULL:\nNULL|:\xff\r\n",
    )  # fmt: skip
    output = kraft(cluster, "consume", topic, "--offset", "0", "--exit-at-end", "--json")
    documents: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    common = {"topic": topic, "partition": 2, "timestamp": now_ms}
    always = {"key": "h", "value": "0"}
    of_first = [always, {"key": "a", "value": "1"}, {"key": "a", "value": None}]
    assert documents == [
        {**common, "offset": 0, "key": "k", "value": None, "headers": of_first},
        {**common, "offset": 1, "key": None, "value": "", "headers": [always]},
        {**common, "offset": 2, "key": "", "value": {"base64": "/w0="}, "headers": [always]},
    ]
    shown = kraft(
        cluster,
        "consume",
        topic,
        "--offset",
        "0",
        "--exit-at-end",
        "--null",
        "∅",
        "--format",
        "%k|%v|%S|%xv;",
    ).decode(errors="replace")
    assert shown == "k|∅|-1|∅;\n∅||0|;\n|\ufffd\r|2|ff0d;\n"


def test_a_line_without_its_key_is_named(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("no-key")
    output = kraft(
        cluster, "produce", topic, "--key-separator", ":", "--json", stdin=b"a:1\nb\nc:3\n", exit_code=1
    )
    assert json.loads(output) == {"topic": topic, "sent": 1, "acknowledged": 1, "failed": 0, "not_sent": 1}
    assert consumed(cluster, topic, "--from-beginning") == ["1"]


def test_a_partition_that_is_not_there_sends_nothing(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("no-partition", 2)
    kraft(cluster, "produce", topic, "--partition", "2", stdin=b"a\n", exit_code=1)
    assert consumed(cluster, topic, "--from-beginning") == []


@pytest.fixture
def two_topics(cluster: NodeProcesses, now_ms: int) -> tuple[str, str]:
    """Two partitions of 0 … 3 (a record a second, up to now), and one of "other"."""
    first, second = cluster.create_topic("range", 2), cluster.create_topic("range", 1)
    for number in range(4):
        for partition in ("0", "1"):
            kraft(
                cluster, "produce", first, "--partition", partition, "--timestamp", str(now_ms - 3000 + number * 1000),
                stdin=b"%d\n" % number,
            )  # fmt: skip
    kraft(cluster, "produce", second, stdin=b"other\n")
    return first, second


def test_where_reading_starts(cluster: NodeProcesses, two_topics: tuple[str, str], now_ms: int) -> None:
    first, second = two_topics
    assert consumed(cluster, first, "--offset", "-1") == ["3", "3"]
    assert consumed(cluster, first, "--offset", "-3", "--partition", "1") == ["1", "2", "3"]
    assert consumed(cluster, first, "--offset", "-100") == sorted("01230123")
    assert consumed(cluster, first, "--from-time", str(now_ms - 1999), "--format", "%v") == [
        "2",
        "2",
        "3",
        "3",
    ]
    assert consumed(cluster, first, "--from-time", "2020-01-31T12:00:00") == sorted("01230123")
    assert consumed(cluster, first, "--from-time", str(now_ms + 600_000)) == []
    assert consumed(cluster, second, first, "--offset", "-1") == ["3", "3", "other"]
    assert consumed(cluster, f"^{second}$", "--include", first, "--offset", "-1") == ["3", "3", "other"]
    assert consumed(cluster, first, "--from-beginning", "--isolation-level", "read_uncommitted") == sorted(
        "01230123"
    )


@pytest.fixture
def waiting(cluster: NodeProcesses) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A topic, and a `kraft consume` that has printed its one record and waits for more."""
    topic = cluster.create_topic("waiting")
    kraft(cluster, "produce", topic, stdin=b"one\n")
    with subprocess.Popen(
        command(cluster, "consume", topic, "--from-beginning"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        try:
            yield topic, process
        finally:
            process.kill()


def test_a_reader_that_has_enough_ends_it_quietly(waiting: tuple[str, subprocess.Popen[bytes]]) -> None:
    """Though no record comes that could not be written."""
    _, process = waiting
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(COMMAND_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_sigterm_ends_it(waiting: tuple[str, subprocess.Popen[bytes]]) -> None:
    _, process = waiting
    process.terminate()
    assert process.wait(COMMAND_S) == 0


def test_brokers_that_refuse_are_told_of_in_time(fragile_cluster: NodeProcesses, tmp_path: Path) -> None:
    """Fewer replicas in sync than asked for: told once, also while the input goes on, and when it is over."""
    cluster = fragile_cluster
    topic = cluster.create_topic("refused", min_insync_replicas="3")
    leader = cluster.leader(topic)
    follower = next(node_id for node_id in cluster.node_ids if node_id != leader)
    cluster.local.kill(follower)
    until(lambda: len(cluster.partitions(topic)[0].isrs) == 2, "the follower has left the ISR")
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as sink,
        subprocess.Popen(command(cluster, "produce", topic), stdin=subprocess.PIPE, stderr=sink) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        until(lambda: bool(errors.read_bytes()), "the refusal is told", TOLD_WITHIN_S + 30)
        cluster.local.start_node(follower)
        until(lambda: errors.read_bytes().count(b"\n") == 2, "its end is told")
        process.stdin.close()
        assert process.wait(COMMAND_S) == 0
    refused, over, counts = errors.read_text().splitlines()
    assert "NOT_ENOUGH_REPLICAS" in refused
    assert "(partition 0)" in refused
    assert over == "the brokers acknowledge again"
    assert counts == "1 acknowledged, 0 failed, 0 not sent"


def on_terminal(cluster: NodeProcesses, *arguments: str) -> str:
    """What a command shows on a terminal of 80 columns, standard output and errors together."""
    shown, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    with subprocess.Popen(
        command(cluster, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**environment, "TERM": "xterm"},
    ) as process:
        os.close(terminal)
        with os.fdopen(shown, "rb") as stream:
            text = b"".join(_until_hung_up(stream))
        assert process.wait(COMMAND_S) == 0, text
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())


def _until_hung_up(stream: Any) -> Iterator[bytes]:
    """A terminal whose other side is closed cannot be read (EIO)."""
    with contextlib.suppress(OSError):
        while data := stream.read1():
            yield data


def test_a_terminal_shows_how_far_it_is_and_the_counts(cluster: NodeProcesses, tmp_path: Path) -> None:
    topic = cluster.create_topic("terminal")
    file = tmp_path / "lines"
    file.write_bytes(b"line\n" * 20_000)
    sent = re.split(r"[\r\n]+", on_terminal(cluster, "produce", topic, str(file)).strip())
    assert sent[-1] == "20,000 acknowledged, 0 failed, 0 not sent"
    bars = [line for line in sent if line.startswith("sending")]
    assert re.search(r"100\.0/100\.0 kB 20,000 acknowledged 0:0", bars[-1])
    assert all(len(line) <= 80 for line in sent)
    read = on_terminal(cluster, "consume", topic, "--offset", "-2", "--exit-at-end").splitlines()
    assert read == ["line", "line", "2 records"]


def test_an_unmodified_client_reads_what_was_compressed(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("compressed")
    lines = [b"line %d" % number for number in range(500)]
    kraft(cluster, "produce", topic, "--compression", "gzip", stdin=b"\n".join(lines))
    assert {batch.codec for batch in cluster.stored_batches(topic, 0)} == {1}
    assert CLIENTS[0].consume(cluster.bootstrap, topic, {0: len(lines)}) == {0: lines}
