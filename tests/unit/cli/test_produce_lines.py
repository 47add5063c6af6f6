"""`kraft produce`: lines to records, and what becomes of each line."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kraft.cli.app import run
from kraft.cli.produce import command, lines
from kraft.cli.produce.lines import LineError, LineFormat, Record, Source
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

Report = Callable[[Any, Any], None]


class Sent:
    """A message as a delivery report has it."""

    def __init__(self, value: bytes | None) -> None:
        self.value = value

    def partition(self) -> int:
        return 0


class Producer:
    """The client library's producer: a queue of two, acknowledged when polled."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = []
        self.arguments: list[dict[str, Any]] = []
        self.refuses: dict[bytes, int] = {}
        self.is_stuck = False
        self.is_dead = False
        self.purges = iter([KafkaError._PURGE_INFLIGHT])
        """What becomes of the first lines that are purged; of all others, that they were in the queue."""
        self.is_purged = False
        self.watch: Any = None
        self.transmitted = 1
        """How many the statistics say were sent, once there is nothing else to wait for."""
        self._queue: list[tuple[bytes | None, Report]] = []

    def produce(
        self,
        topic: str,
        *,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        on_delivery: Report,
        **others: Any,
    ) -> None:
        if self.is_dead:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if value == b"too large":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if len(self._queue) == 2:
            raise BufferError("queue full")
        self.sent.append((key, value, headers))
        self.arguments.append(others)
        self._queue.append((value, on_delivery))

    def poll(self, timeout_s: float) -> int:
        if timeout_s > 0:
            self.flush(timeout_s)
        if timeout_s > 0 and self.is_purged:
            partition = {"txmsgs": self.transmitted, "msgs": 2, "leader": 1, "msgq_cnt": 0}
            topics = {"t": {"partitions": {"0": partition}}}
            self.watch.on_statistics(json.dumps({"brokers": {}, "topics": topics}))
        return 0

    def flush(self, timeout_s: float) -> int:
        if self.is_stuck:
            signal.raise_signal(signal.SIGINT)
            return len(self._queue)
        self._report(lambda value: self.refuses.get(value or b""))
        return 0

    def purge(self) -> None:
        self.is_stuck = False
        self.is_purged = True
        self._report(lambda _: next(self.purges, KafkaError._PURGE_QUEUE))

    def _report(self, code_of: Callable[[bytes | None], int | None]) -> None:
        for value, report in self._queue:
            code = code_of(value)
            report(None if code is None else KafkaError(code), Sent(value))
        self._queue.clear()


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()

    def make(wanted: object, watch: object) -> Producer:
        made.watch = watch
        return made

    monkeypatch.setattr(command, "_producer", make)
    return made


def produce(monkeypatch: pytest.MonkeyPatch, data: bytes, *options: str) -> int:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    return run(["produce", "t", *options])


def test_lines_end_at_newlines_only(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert produce(monkeypatch, b"a\r\n\nb\x0bc\x85d\nlast") == 0
    assert [value for _, value, _ in producer.sent] == [b"a\r", b"", b"b\x0bc\x85d", b"last"]


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 100])
def test_lines_do_not_depend_on_how_they_arrive(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK_BYTES", chunk_bytes)
    read: list[int] = []
    source = Source("s", io.BytesIO(b"ab\n\nc\r\nd\n"))
    assert list(lines.lines(source, 1, read.append)) == [b"ab", b"", b"c\r", b"d"]
    assert sum(read) == 9


def test_a_pipe_that_has_nothing_yet_holds_up_nobody() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as stream:
        found = lines.lines(Source("pipe", stream), 0.01, lambda _: None)
        assert next(found) is None
        os.write(write_end, b"a\nb")
        assert next(found) == b"a"
        assert next(found) is None
        os.close(write_end)
        assert list(found) == [b"b"]


def test_a_line_without_end_is_not_gathered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK_BYTES", 2)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 3)
    found = lines.lines(Source("s", io.BytesIO(b"a\nbbbb\n")), 1, lambda _: None)
    assert next(found) == b"a"
    with pytest.raises(UserError, match="a line of s is longer than 3 bytes"):
        next(found)


FORMATS = [
    (LineFormat(), b"k\tv", Record(None, b"k\tv", [])),
    (LineFormat(b"\t"), b"k\tv\tw", Record(b"k", b"v\tw", [])),
    (LineFormat(b"\t"), b"\t", Record(b"", b"", [])),
    (LineFormat(b"\t", is_key_optional=True), b"v", Record(None, b"v", [])),
    (LineFormat(b"\t", null=b""), b"k\t", Record(b"k", None, [])),
    (LineFormat(b"\t", null=b"NULL"), b"NULL\tNULL", Record(None, None, [])),
    (LineFormat(null=b"NULL"), b"NULLS", Record(None, b"NULLS", [])),
    (LineFormat(b":", headers_separator=b"|"), b"a=1,b=x=y|k:v|w", Record(b"k", b"v|w", [("a", b"1"), ("b", b"x=y")])),
    (LineFormat(headers_separator=b"|", headers=(("h", b"0"),)), b"|v", Record(None, b"v", [("h", b"0")])),
    (LineFormat(headers_separator=b"|", null=b"N"), b"N|N", Record(None, None, [])),
    (LineFormat(headers_separator=b"|", null=b"N"), b"a=N,b=|v", Record(None, b"v", [("a", None), ("b", b"")])),
]  # fmt: skip


@pytest.mark.parametrize(("line_format", "line", "record"), FORMATS)
def test_what_a_line_says(line_format: LineFormat, line: bytes, record: Record) -> None:
    assert line_format.record(line) == record


@pytest.mark.parametrize(
    ("line_format", "line", "reason"),
    [
        (LineFormat(b"\t"), b"plain", r"has no key separator '\\t' \(--key-optional"),
        (LineFormat(headers_separator=b"|"), b"a=1", r"has no separator '\|' after its headers"),
        (LineFormat(headers_separator=b"|"), b"a|v", "has 'a' where a header K=V belongs"),
        (LineFormat(headers_separator=b"|"), b"=1|v", "has '=1' where a header K=V belongs"),
        (LineFormat(headers_separator=b"|"), b"\xff=1|v", "has a header whose name '\\\\xff' is no UTF-8"),
    ],
)
def test_a_line_that_says_something_else(line_format: LineFormat, line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason):
        line_format.record(line)


def test_keys_and_headers(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--key-separator", "\\t", "--key-optional", "--header", "a=b=c")
    assert produce(monkeypatch, b"k\tv\tw\nplain\n", *options) == 0
    assert producer.sent == [(b"k", b"v\tw", [("a", b"b=c")]), (None, b"plain", [("a", b"b=c")])]
    assert producer.arguments == [{}, {}]


def test_a_line_without_a_key_ends_the_run_and_is_named(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, b"a:1\nb:2\nplain\nc:3\n", "--key-separator", ":", "--json") == 1
    shown = capsys.readouterr()
    assert "line 3 of standard input has no key separator ':'" in shown.err
    assert "2 acknowledged, 0 failed, 1 not sent" in shown.err
    assert json.loads(shown.out) == {"topic": "t", "sent": 2, "acknowledged": 2, "failed": 0, "not_sent": 1}
    assert [key for key, _, _ in producer.sent] == [b"a", b"b"]


def test_a_partition_and_a_time_go_with_every_record(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "check_partition", lambda *_: None)
    assert produce(monkeypatch, b"a\nb", "--partition", "3", "--timestamp", "2023-11-14T22:13:20Z") == 0
    assert producer.arguments == [{"partition": 3, "timestamp": 1_700_000_000_000}] * 2


def test_a_line_that_stays_unacknowledged_fails_the_run(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    producer.refuses[b"b"] = KafkaError.NOT_ENOUGH_REPLICAS
    assert produce(monkeypatch, b"a\nb\ntoo large\nc\n") == 1
    shown = capsys.readouterr().err
    assert "2 of 4 lines stayed unacknowledged: 2 acknowledged, 2 failed, 0 not sent; first reason: " in shown
    assert [value for _, value, _ in producer.sent] == [b"a", b"b", b"c"]


def test_the_end_is_one_line(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, b"a\n" * 1234) == 0
    assert capsys.readouterr() == ("", "1,234 acknowledged, 0 failed, 0 not sent\n")


def test_json_counts_the_lines(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"topic": "t", "sent": 2, "acknowledged": 2, "failed": 0, "not_sent": 0}
    assert produce(monkeypatch, b"a\nb", "--json") == 0
    assert json.loads(capsys.readouterr().out) == counts
    producer.refuses[b"b"] = KafkaError.NOT_ENOUGH_REPLICAS
    assert produce(monkeypatch, b"a\nb", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {**counts, "acknowledged": 1, "failed": 1}


def test_ctrl_c_counts_what_was_not_sent(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The producer's queue is full and stays so: interrupted while it waits, and once more while it ends."""
    producer.is_stuck = True
    before = signal.getsignal(signal.SIGINT)
    assert produce(monkeypatch, b"a\nb\nc\nd\n") == 1
    shown = capsys.readouterr().err
    assert (
        "interrupted; nothing after line 3 of standard input was sent: 0 acknowledged, 1 failed, 2 not sent"
        in shown
    )
    assert signal.getsignal(signal.SIGINT) is before


def test_a_line_that_waits_to_be_sent_again_is_not_called_not_sent(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader that died before it answered may have written it: librdkafka purges it from its queue."""
    producer.is_stuck = True
    producer.purges = iter(())
    producer.transmitted = 5  # each twice, and one more
    assert produce(monkeypatch, b"a\nb\nc\nd\n") == 1
    assert "0 acknowledged, 2 failed, 1 not sent; first reason: no answer" in capsys.readouterr().err


def test_a_signal_that_is_ignored_stays_so(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(producer, "poll", lambda timeout_s: signal.raise_signal(signal.SIGHUP))
        assert produce(monkeypatch, b"a\nb\n") == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(producer.sent) == 2


def test_ctrl_c_is_how_typing_ends(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Typed(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            signal.raise_signal(signal.SIGINT)
            return b"a\nb\n"

    source = Source("standard input", Typed(), is_terminal=True)
    monkeypatch.setattr(command, "open_sources", lambda files: [source])
    assert run(["produce", "t"]) == 0
    assert capsys.readouterr().err == "1 acknowledged, 0 failed, 0 not sent\n"


def test_a_producer_that_is_dead_ends_the_run(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    producer.is_dead = True
    assert produce(monkeypatch, b"a\n" * 100) == 1
    assert (
        "librdkafka gave up; nothing after line 1 of standard input was sent: 0 acknowledged, 1 failed"
        in capsys.readouterr().err
    )


def test_a_producer_that_dies_while_it_ends_is_no_defect(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """librdkafka's flush raises then; its reports still come."""
    flush, deaths = producer.flush, iter([KafkaError(KafkaError._FATAL)])

    def dying(timeout_s: float) -> int:
        if (death := next(deaths, None)) is not None:
            raise KafkaException(death)
        return flush(timeout_s)

    monkeypatch.setattr(producer, "flush", dying)
    monkeypatch.setattr(Producer, "__len__", lambda self: len(self._queue), raising=False)
    assert produce(monkeypatch, b"a\n") == 0
    assert capsys.readouterr().err == "1 acknowledged, 0 failed, 0 not sent\n"


def test_a_file_that_cannot_be_read_on_is_a_sentence(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Rotten(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    sources = [Source("good", io.BytesIO(b"a\n")), Source("rotten", Rotten())]
    monkeypatch.setattr(command, "open_sources", lambda files: sources)
    assert run(["produce", "t"]) == 1
    assert "cannot read rotten: Input/output error: 1 acknowledged, 0 failed" in capsys.readouterr().err


# -- in transactions


class Ending:
    """The error of a transactional call, as librdkafka has it."""

    def __init__(self, *, retriable: bool = False, abortable: bool = False) -> None:
        self._retriable, self._abortable = retriable, abortable

    def retriable(self) -> bool:
        return self._retriable

    def txn_requires_abort(self) -> bool:
        return self._abortable

    def code(self) -> int:
        return int(KafkaError._FENCED)

    def str(self) -> str:
        return "fenced"


class Transactional(Producer):
    """With `steps`, what became of it; `errors` are those of its calls to come."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.errors: dict[str, list[Ending]] = {}

    def _step(self, name: str) -> None:
        if self.errors.get(name):
            raise KafkaException(self.errors[name].pop(0))
        self.steps.append(name)

    def init_transactions(self, timeout_s: float) -> None:
        self._step("init")

    def begin_transaction(self) -> None:
        self._step("begin")

    def commit_transaction(self, timeout_s: float) -> None:
        self._step("commit")
        self.flush(0)

    def abort_transaction(self, timeout_s: float) -> None:
        self._step("abort")
        self.flush(0)


@pytest.fixture
def transactional(monkeypatch: pytest.MonkeyPatch) -> Transactional:
    made = Transactional()
    monkeypatch.setattr(command, "_producer", lambda wanted, watch: made)
    return made


IN_TRANSACTIONS = ("--transactional-id", "x")


def test_all_lines_are_one_transaction(
    transactional: Transactional, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, b"a\nb\nc\n", *IN_TRANSACTIONS, "--json") == 0
    assert transactional.steps == ["init", "begin", "commit"]
    assert json.loads(capsys.readouterr().out) == {
        "topic": "t", "sent": 3, "acknowledged": 3, "failed": 0, "not_sent": 0, "committed": 3
    }  # fmt: skip


def test_so_many_lines_a_transaction(
    transactional: Transactional, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transactional.errors["commit"] = [Ending(retriable=True)]
    assert produce(monkeypatch, b"a\nb\nc\n", *IN_TRANSACTIONS, "--transaction-records", "2") == 0
    assert transactional.steps == ["init", "begin", "commit", "begin", "commit"]
    assert capsys.readouterr().err == "3 committed, 0 aborted, 0 failed, 0 not sent\n"


def test_a_transaction_without_lines_is_not_begun(
    transactional: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert produce(monkeypatch, b"", *IN_TRANSACTIONS) == 0
    assert transactional.steps == ["init"]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (b"too large\n", "the transaction was aborted; nothing after line 4 of standard input was sent"),
        (b"no key\n", "line 4 of standard input has no key separator"),
    ],
)
def test_a_line_that_fails_aborts_its_transaction_and_ends_the_run(
    bad: bytes,
    sentence: str,
    transactional: Transactional,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = b"a:\nb:\nc:\n" + (b":" if b"large" in bad else b"") + bad + b"d:\n" * 10
    options = ("--transaction-records", "2", "--key-separator", ":")
    assert produce(monkeypatch, data, *IN_TRANSACTIONS, *options) == 1
    assert transactional.steps == ["init", "begin", "commit", "begin", "abort"]
    shown = " ".join(capsys.readouterr().err.split())
    assert sentence in shown
    assert "2 committed, 1 aborted" in shown


def test_an_interrupted_transaction_is_aborted(
    transactional: Transactional, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transactional, "poll", lambda timeout_s: signal.raise_signal(signal.SIGTERM))
    assert produce(monkeypatch, b"a\nb\n", *IN_TRANSACTIONS) == 1
    assert transactional.steps == ["init", "begin", "abort"]
    assert "interrupted; nothing after line 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ending", "steps", "exit_code", "sentence"),
    [
        (Ending(abortable=True), ["init", "begin", "abort"], 1, "0 committed, 1 aborted, 0 failed"),
        (Ending(), ["init", "begin"], EXIT_UNDECIDED, "0 committed, 0 aborted, 1 undecided"),
    ],
)
def test_a_commit_that_fails(
    ending: Ending,
    steps: list[str],
    exit_code: int,
    sentence: str,
    transactional: Transactional,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    transactional.errors["commit"] = [ending]
    assert produce(monkeypatch, b"a\n", *IN_TRANSACTIONS) == exit_code
    assert transactional.steps == steps
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("step", "steps"), [("init", []), ("begin", ["init"])])
def test_a_transactional_id_that_another_has(
    step: str,
    steps: list[str],
    transactional: Transactional,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    transactional.errors[step] = [Ending()]
    assert produce(monkeypatch, b"a\nb\n", *IN_TRANSACTIONS) == 1
    assert (transactional.steps, transactional.sent) == (steps, [])
    assert "fenced" in capsys.readouterr().err


def test_a_wrong_file_name_sends_nothing(producer: Producer, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"a\n")
    assert run(["produce", "t", str(tmp_path / "good"), str(tmp_path / "missing")]) == 1
    assert producer.sent == []
    assert run(["produce", "t", str(tmp_path / "good")]) == 0
    assert len(producer.sent) == 1


def test_a_header_without_a_value_is_wrong_usage() -> None:
    with pytest.raises(UserError) as caught:
        command._parse_headers(["=v"])
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--key-optional",), "--key-optional goes with --key-separator"),
        (("--timestamp", "0"), "--timestamp is a time since 1970"),
        (("--property", "acks=1"), "--acks sets it"),
        (("--property", "compression.codec=lz4"), "--compression sets it"),
        (("--property", "transactional.id=x"), "--transactional-id sets it"),
        (("--transaction-records", "5"), "--transaction-records goes with --transactional-id"),
        (("--transactional-id", "x", "--acks", "1"), "--transactional-id goes with --acks all"),
        (("--property", "no.such.thing=1"), "No such configuration property"),
        (("--property", "linger.ms=soon"), "Invalid value"),
        (("--property", "message.max.bytes=1"), "outside allowed range"),
        (("--acks", "1", "--property", "enable.idempotence=true"), "acks"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["produce", "t", "/dev/null", "--bootstrap-server", "127.0.0.1:1", *options]) == EXIT_USAGE
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1, "one line, whatever librdkafka ends its words with"
