"""Lines of odd files come back byte for byte: every client as producer, every client as consumer."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft.cli.produce.command import Acks
from partitions.records.compression import Codec
from tests.support.log_files import log_files, split_lines, spread, write_log_files
from tests.support.node_processes import NodeProcesses
from tests.support.real_clients import CLIENTS, CODECS, Client, How, run_kcat

PARTITIONS = 3
ALL_LINES = spread(log_files(), PARTITIONS)

Sent = tuple[str, dict[int, list[bytes]]]
"""A topic, and what was sent to each of its partitions."""


def _name(value: object) -> str | None:
    return getattr(value, "name", None)


@pytest.fixture(scope="module")
def sent(cluster: NodeProcesses) -> Callable[[Client, str], Sent]:
    """Has a client send all lines that it can carry with a codec, once for all consumers."""
    topics: dict[tuple[str, str], Sent] = {}

    def send(producer: Client, codec: str) -> Sent:
        key = producer.name, codec
        if key not in topics:
            lines = {p: [line for line in lines if producer.carries(line)] for p, lines in ALL_LINES.items()}
            topic = cluster.create_topic(
                f"lines-{producer.name}-{codec}", PARTITIONS, min_insync_replicas="2"
            )
            producer.produce(cluster.bootstrap, topic, lines, How(codec))
            topics[key] = topic, lines
        return topics[key]

    return send


def assert_same(read: dict[int, list[bytes]], lines: dict[int, list[bytes]]) -> None:
    """The same lines as often, and in each partition in the same order."""
    everything = [Counter(itertools.chain.from_iterable(side.values())) for side in (read, lines)]
    missing, extra = everything[1] - everything[0], everything[0] - everything[1]
    assert not missing, f"{missing.total()} lines lost, {[line[:60] for line in missing][:3]} among them"
    assert not extra, f"{extra.total()} lines too many, {[line[:60] for line in extra][:3]} among them"
    for partition, values in lines.items():
        assert read[partition] == values, f"partition {partition} is out of order"


def test_the_files_have_the_oddities() -> None:
    lines = [line for content in log_files().values() for line in split_lines(content)]
    everything = b"".join(log_files().values())
    assert max(map(len, lines)) > 2 * 65_536
    assert max(Counter(lines).values()) > 10
    assert b"" in lines
    assert all(odd in everything for odd in (b"\r\n", b"\x00", b"\xff", b"\xc3("))
    assert any(content and not content.endswith(b"\n") for content in log_files().values())
    with pytest.raises(UnicodeDecodeError):
        everything.decode()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("consumer", CLIENTS, ids=_name)
@pytest.mark.parametrize("producer", CLIENTS, ids=_name)
def test_every_pair_of_clients(
    producer: Client,
    consumer: Client,
    codec: str,
    cluster: NodeProcesses,
    sent: Callable[[Client, str], Sent],
) -> None:
    if codec not in producer.codecs or codec not in consumer.codecs:
        pytest.skip(f"the library for {codec} that kafka-python wants is not installed")
    topic, lines = sent(producer, codec)
    read = consumer.consume(cluster.bootstrap, topic, {p: len(values) for p, values in lines.items()})
    assert_same(read, lines)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", CLIENTS, ids=_name)
def test_batches_are_stored_as_the_client_compressed_them(
    producer: Client, codec: str, cluster: NodeProcesses, sent: Callable[[Client, str], Sent]
) -> None:
    if codec not in producer.codecs:
        pytest.skip(f"the library for {codec} that kafka-python wants is not installed")
    topic, lines = sent(producer, codec)
    for partition, values in lines.items():
        batches = cluster.stored_batches(topic, partition)
        assert sum(batch.record_count for batch in batches) == len(values)
        # Clients send a batch as it is when compressing it gains nothing; most gain.
        assert Codec[codec.upper()] in {Codec(batch.codec) for batch in batches}


def test_one_topic_with_every_producer_and_codec(cluster: NodeProcesses) -> None:
    """Batches of different codecs and clients lie side by side in one log."""
    topic, expected = cluster.create_topic("mixed"), list[bytes]()
    for number, (producer, codec) in enumerate(itertools.product(CLIENTS, CODECS)):
        if codec in producer.codecs:
            values = [b"%d %d \r" % (number, i) * 20 for i in range(50)]
            producer.produce(cluster.bootstrap, topic, {0: values}, How(codec))
            expected += values
    for consumer in CLIENTS:
        if set(consumer.codecs) == set(CODECS):
            read = consumer.consume(cluster.bootstrap, topic, {0: len(expected)})
            assert read[0] == expected, consumer.name


def test_kcat_sends_a_file_whose_name_has_spaces(cluster: NodeProcesses, tmp_path: Path) -> None:
    topic = cluster.create_topic("kcat-file")
    expected = []
    for path in write_log_files(tmp_path):
        run_kcat("-P", "-b", cluster.bootstrap, "-t", topic, "-p", "0", "-l", str(path))
        expected += [line for line in split_lines(path.read_bytes()) if line]  # kcat drops empty lines
    assert CLIENTS[0].consume(cluster.bootstrap, topic, {0: len(expected)}) == {0: expected}


def test_kcat_sends_keys_and_empty_values(cluster: NodeProcesses) -> None:
    """The one way for kcat to send an empty value: a line of nothing but its key."""
    topic = cluster.create_topic("kcat-keys")
    run_kcat("-P", "-b", cluster.bootstrap, "-t", topic, "-p", "0", "-K", "|", stdin=b"a|1\r\nb|\nc|3|4\n")
    output = run_kcat(
        "-C", "-q", "-e", "-b", cluster.bootstrap, "-t", topic, "-o", "beginning", "-f", "%K %k %S %s;"
    )
    assert output == b"1 a 2 1\r;1 b 0 ;1 c 3 3|4;"


def kraft(*arguments: str, stdin: bytes = b"") -> bytes:
    """Runs the command line; returns its standard output."""
    command = [sys.executable, "-m", "kraft.cli.entry", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def as_output(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize("acks", [acks.value for acks in Acks])
def test_kraft_produce_and_consume_files(acks: str, cluster: NodeProcesses, tmp_path: Path) -> None:
    topic = cluster.create_topic("kraft-files")
    paths = write_log_files(tmp_path)
    lines = [line for path in paths for line in split_lines(path.read_bytes())]
    kraft("produce", topic, *map(str, paths), "--acks", acks, "--bootstrap-server", cluster.bootstrap)
    output = kraft(
        "consume",
        topic,
        "--from-beginning",
        "--max",
        str(len(lines)),
        "--bootstrap-server",
        cluster.bootstrap,
    )
    assert output == as_output(lines)


def test_kraft_produce_and_consume_spread_over_partitions(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("kraft-spread", partitions=4)
    lines = [line for content in log_files().values() for line in split_lines(content)]
    kraft("produce", topic, "--bootstrap-server", cluster.bootstrap, stdin=b"\n".join(lines))
    output = kraft(
        "consume", topic, "--from-beginning", "--exit-at-end", "--bootstrap-server", cluster.bootstrap
    )
    assert Counter(output.split(b"\n")) == Counter(as_output(lines).split(b"\n"))


@pytest.mark.parametrize("producer", CLIENTS, ids=_name)
def test_kraft_consumes_what_clients_send(
    producer: Client, cluster: NodeProcesses, sent: Callable[[Client, str], Sent]
) -> None:
    topic, lines = sent(producer, "lz4")
    output = kraft(
        "consume", topic, "--offset", "earliest", "--exit-at-end", "--format", "%p %v",
        "--bootstrap-server", cluster.bootstrap,
    )  # fmt: skip
    read: dict[int, list[bytes]] = {partition: [] for partition in lines}
    for line in output.split(b"\n")[:-1]:
        partition, _, value = line.partition(b" ")
        read[int(partition)].append(value)
    assert_same(read, lines)


@pytest.mark.parametrize("consumer", CLIENTS, ids=_name)
def test_clients_consume_what_kraft_sends(consumer: Client, cluster: NodeProcesses, tmp_path: Path) -> None:
    topic = cluster.create_topic("kraft-out")
    lines = [line for path in write_log_files(tmp_path) for line in split_lines(path.read_bytes())]
    files = [
        str(path) for path in sorted(tmp_path.iterdir(), key=lambda path: list(log_files()).index(path.name))
    ]
    kraft("produce", topic, *files, "--bootstrap-server", cluster.bootstrap)
    assert consumer.consume(cluster.bootstrap, topic, {0: len(lines)}) == {0: lines}


def test_keys_and_headers_through_the_command_line(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("kraft-keys")
    kraft(
        "produce", topic, "--key-separator", "::", "--key-optional", "--header", "a=1", "--header", "b=x=y",
        "--bootstrap-server", cluster.bootstrap, stdin=b"k\xff::v\r\n::empty key\nno key\nk2::v::w",
    )  # fmt: skip
    output = kraft(
        "consume", topic, "--from-beginning", "--exit-at-end", "--format", "%t %p %o %k=%v [%h]\\n",
        "--bootstrap-server", cluster.bootstrap,
    )  # fmt: skip
    name = topic.encode()
    assert output.split(b"\n") == [
        name + b" 0 0 k\xff=v\r [a=1,b=x=y]",
        name + b" 0 1 =empty key [a=1,b=x=y]",
        name + b" 0 2 =no key [a=1,b=x=y]",
        name + b" 0 3 k2=v::w [a=1,b=x=y]",
        b"",
    ]
