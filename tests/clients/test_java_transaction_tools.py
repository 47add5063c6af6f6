"""Kafka's own kafka-transactions and the formatter of its transaction log, where Maven and a JDK are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schemas.producers import InitProducerIdRequest, InitProducerIdResponse
from tests.support.java_programs import DOWNLOAD_S, RUN_S, json_objects, run_java
from tests.support.node_processes import PATIENCE, NodeProcesses, until
from tests.support.raw_client import PRODUCE_VERSION, RawConnection, batch
from tests.support.transactional_clients import (
    CONFLUENT,
    STATE_TOPIC,
    Transactor,
    is_stable,
    read_all,
    until_stable,
)

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LOG_FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
INIT_VERSION = 4
QUIET_MS = 20_000

pytestmark = pytest.mark.timeout(DOWNLOAD_S + 2 * RUN_S)


@pytest.fixture(scope="module")
def unverified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """One node on which a batch may hang, as before KIP-890."""
    settings = {
        **PATIENCE,
        "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    cluster = NodeProcesses(tmp_path_factory.mktemp("unverified"), nodes=1, settings=settings)
    try:
        yield cluster
    finally:
        cluster.close()


def _rows(table: str) -> list[dict[str, str]]:
    """The rows of a table of tab-separated columns, which are aligned with spaces."""
    lines = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines() if line.strip()]
    return [dict(zip(lines[0], cells, strict=False)) for cells in lines[1:]]


def test_transactions_by_kafkas_own_tool(java_classpath: str, unverified: NodeProcesses) -> None:
    cluster = unverified
    topic = cluster.create_topic("tools", replication_factor=1)

    def tool(*arguments: str) -> list[dict[str, str]]:
        return _rows(
            run_java(java_classpath, TRANSACTIONS, "--bootstrap-server", cluster.bootstrap, *arguments)
        )

    place = ("--topic", topic, "--partition", "0")
    with Transactor(cluster, CONFLUENT, "tools-id") as producer:
        producer.ask("init")
        producer.ask("begin")
        producer.send(topic, {0: "kept"})
        (listed,) = [row for row in tool("list") if row["TransactionalId"] == "tools-id"]
        assert listed["TransactionState"] == "Ongoing"
        (row,) = tool("describe", "--transactional-id", "tools-id")
        assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
        assert row["ProducerId"] == listed["ProducerId"]
        (active,) = tool("describe-producers", *place)
        assert (active["ProducerId"], active["CurrentTransactionStartOffset"]) == (row["ProducerId"], "0")
        producer.ask("commit")
    until_stable(cluster, topic)

    hanging = _hang(cluster, topic)
    assert not is_stable(cluster, topic)
    (found,) = tool("find-hanging", *place)
    assert (found["Topic"], found["ProducerId"]) == (topic, str(hanging.producer_id))
    tool("abort", *place, "--start-offset", found["StartOffset"])
    until_stable(cluster, topic)
    assert tool("find-hanging", *place) == []
    assert list(read_all(cluster, topic, committed=True)) == ["kept"]


def _hang(cluster: NodeProcesses, topic: str) -> InitProducerIdResponse:
    """Writes a batch of a transaction that no coordinator knows."""
    with RawConnection(cluster.address(cluster.leader(STATE_TOPIC))) as connection:

        def init() -> InitProducerIdResponse | None:
            request = InitProducerIdRequest(transactional_id="hanging", transaction_timeout_ms=60_000)
            answer: InitProducerIdResponse = connection.call(request, INIT_VERSION)
            return answer if answer.error_code == ErrorCode.NONE else None

        made: InitProducerIdResponse = until(init, "a producer id")
        records = batch(
            b"hanging",
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(transactional_id="hanging", acks=-1, timeout_ms=10_000, topic_data=[data])
        answer = connection.call(request, PRODUCE_VERSION).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE
        return made


def test_kafkas_formatter_reads_the_transaction_log(java_classpath: str, unverified: NodeProcesses) -> None:
    topic = unverified.create_topic("formatted", replication_factor=1)
    with Transactor(unverified, CONFLUENT, "formatted-id") as producer:
        producer.ask("init")
        producer.transaction(topic, {0: "value"})
    until_stable(unverified, topic)
    text = run_java(
        java_classpath,
        CONSOLE_CONSUMER,
        *("--bootstrap-server", unverified.bootstrap, "--topic", STATE_TOPIC, "--partition", "0"),
        *("--offset", "earliest", "--formatter", LOG_FORMATTER, "--timeout-ms", str(QUIET_MS)),
    )
    of_id = [one for one in json_objects(text) if one["key"]["data"]["transactionalId"] == "formatted-id"]
    states = [one["value"]["data"]["transactionStatus"] for one in of_id]
    empty, ongoing, prepare_commit, complete_commit = 0, 1, 2, 4
    assert states == [empty, ongoing, prepare_commit, complete_commit]
    (partitions,) = of_id[1]["value"]["data"]["transactionPartitions"]
    assert partitions == {"topic": topic, "partitionIds": [0]}
