"""Whatever goes wrong ends in a sentence, soon, with no process left."""

from __future__ import annotations

import os
import signal

import pytest

from bench import processes
from bench.errors import BenchError
from bench.librdkafka import BatchConsumer, BatchProducer, LibraryError
from bench.processes import Child
from bench.rows import WORKERS
from kraft.runtime.free_ports import free_port_range


def test_a_client_that_reaches_no_broker_fails_at_once() -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{free_port_range(1)}", "log_level": "0"}
    with pytest.raises(LibraryError, match="no broker answered within 100 ms"):
        BatchProducer(settings, "t", partitions=1, value=b"x", batch_records=1, metadata_timeout_ms=100)
    with pytest.raises(LibraryError, match="no broker answered within 100 ms"):
        BatchConsumer(settings, "t", [0], metadata_timeout_ms=100)


def test_a_setting_that_librdkafka_does_not_know_is_refused_with_its_words() -> None:
    with pytest.raises(LibraryError, match=r"no\.such\.setting"):
        BatchProducer({"no.such.setting": "1"}, "t", partitions=1, value=b"x", batch_records=1)


def test_a_producer_gives_up_at_its_deadline(null_broker: tuple[Child, int]) -> None:
    broker, port = null_broker
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": "0"}
    producer = BatchProducer(settings, "bench", partitions=1, value=b"x", batch_records=10)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        os.waitpid(broker.pid, os.WUNTRACED)  # from here on nothing is answered, however soon it is asked
        with pytest.raises(LibraryError, match="10 records unanswered"):
            producer.send(10, 0.0)
        producer.close()
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_a_child_that_fails_is_quoted() -> None:
    with (
        Child(WORKERS, ["nonsense"]) as child,
        pytest.raises(BenchError, match="ended with exit code 1: "),
    ):
        child.await_ready()
    assert not _exists(child.pid)


def test_a_child_that_says_nothing_is_given_up_and_ended(
    null_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "RESULT_TIMEOUT_S", 0.05)
    with Child(WORKERS, ["produce", f"127.0.0.1:{null_port}", "bench", 6, 100, "1"]) as child:
        child.await_ready()
        with pytest.raises(BenchError, match=r"said nothing for 0\.05 s"):
            child.result()  # it was never told to go
    assert not _exists(child.pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
