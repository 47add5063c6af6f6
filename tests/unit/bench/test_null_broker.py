"""The null broker answers what the load asks, with whole batches at the right offsets."""

from __future__ import annotations

import asyncio
import struct

import pytest

from bench.errors import BenchError
from bench.librdkafka import BatchConsumer, BatchProducer
from bench.null_broker import BATCH_RECORDS, MemoryLog, Null, NullProtocol
from bench.processes import Child
from bench.rows import PARTITIONS, WORKERS
from kraft.runtime.free_ports import free_port_range
from partitions.records.batch import iter_batches, parse_header
from partitions.records.builder import build_batch


def test_the_log_in_memory_is_made_of_whole_batches_in_order() -> None:
    log = MemoryLog(2 * BATCH_RECORDS + 1)
    assert log.end_offset == 3 * BATCH_RECORDS
    headers = [header for _, header in iter_batches(log.read(BATCH_RECORDS + 5, 10_000_000))]
    assert [header.base_offset for header in headers] == [BATCH_RECORDS, 2 * BATCH_RECORDS]
    assert len(log.read(log.end_offset, 1)) == 0


def test_the_log_in_memory_has_batches_of_the_size_asked_for() -> None:
    log = MemoryLog(100, 30)
    assert log.end_offset == 120
    headers = [header for _, header in iter_batches(log.read(65, 10_000_000))]
    assert [(header.base_offset, header.record_count) for header in headers] == [(60, 30), (90, 30)]


def test_a_read_is_limited_but_never_less_than_a_batch() -> None:
    log = MemoryLog(2 * BATCH_RECORDS)
    assert len(list(iter_batches(log.read(0, 1)))) == 1


def test_a_kept_batch_is_found_at_its_offset() -> None:
    log = MemoryLog(0)
    batch = build_batch([(0, None, b"a", ()), (0, None, b"b", ())])
    log.keep(batch)
    log.keep(batch)
    assert log.end_offset == 4
    assert struct.unpack_from(">q", log.read(3, 1))[0] == 2
    assert parse_header(log.read(0, 1)).base_offset == 0
    assert len(log.read(4, 1)) == 0


def test_librdkafka_produces_to_it_and_consumes_from_it(null_port: int, deadline_s: float) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{null_port}", "log_level": "0"}
    producer = BatchProducer(settings, "bench", partitions=PARTITIONS, value=b"x" * 100, batch_records=100)
    producer.send(1_234, deadline_s)
    producer.close()
    consumer = BatchConsumer(settings, "bench", range(PARTITIONS))
    assert consumer.receive(PARTITIONS * BATCH_RECORDS, deadline_s) >= PARTITIONS * BATCH_RECORDS
    consumer.close()


async def test_a_producing_worker_sends_records_of_its_size_with_its_settings() -> None:
    port, records = free_port_range(1), 60
    null = Null(port, "bench", 2, 0, keep=True)
    server = await asyncio.get_running_loop().create_server(lambda: NullProtocol(null), "127.0.0.1", port)
    load = ["produce", f"127.0.0.1:{port}", "bench", 2, records, "1", 100_000, "batch.num.messages=1"]

    def work() -> dict[str, float]:
        with Child(WORKERS, load) as worker:
            worker.await_ready()
            worker.go()
            return worker.result()

    report = await asyncio.to_thread(work)
    server.close()
    assert report["records"] == records
    batches = [batch for log in null.logs for batch in iter_batches(log.read(0, 1))]
    assert [header.record_count for _, header in batches] == [1] * records
    assert [log.end_offset for log in null.logs] == [records / 2, records / 2]
    assert all(100_000 < header.size_bytes < 100_200 for _, header in batches)


@pytest.mark.parametrize(
    ("word", "said"), [("no.such.setting=1", r"no\.such\.setting"), ("linger.ms", "SETTING=VALUE")]
)
def test_a_worker_refuses_a_setting_that_is_none(null_port: int, word: str, said: str) -> None:
    with (
        Child(WORKERS, ["produce", f"127.0.0.1:{null_port}", "bench", 6, 100, "1", 100, word]) as worker,
        pytest.raises(BenchError, match=said),
    ):
        worker.await_ready()


def test_a_latency_worker_sees_its_own_records() -> None:
    port = free_port_range(1)
    with Child("bench.null_broker", [port, "bench", 1, "--keep"]) as null:
        null.await_ready()
        with Child(WORKERS, ["latency", f"127.0.0.1:{port}", "bench", 20]) as worker:
            worker.await_ready()
            worker.go()
            report = worker.result()
    assert report["records"] == 20
    assert 0 < report["p50_ms"] <= report["p99_ms"] <= report["p999_ms"]


def test_a_paced_worker_sends_what_is_due_and_hears_of_each_record(null_port: int) -> None:
    rate, records = 10_000, 1_000
    load = ["paced", f"127.0.0.1:{null_port}", "bench", PARTITIONS, rate, records]
    with Child(WORKERS, load) as worker:
        worker.await_ready()
        worker.go()
        report = worker.result()
    assert report["records"] == records
    assert report["elapsed_s"] >= (records - 1) / rate  # none is sent before it is due
    assert 0 < report["p50_ms"] <= report["p99_ms"] <= report["p999_ms"]
