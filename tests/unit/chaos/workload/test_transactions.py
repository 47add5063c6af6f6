"""Transactional clients against a real simulated cluster."""

from __future__ import annotations

import pytest

from kraft.broker.handlers.produce_transactions import ProducedTransaction
from kraft.chaos.checker import TransactionReport, check_history, check_transactions
from kraft.chaos.history import OperationStatus
from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.transaction_history import TransactionEnd, TransactionHistory
from kraft.chaos.workload import base
from kraft.chaos.workload.groups import member
from kraft.chaos.workload.transactions import producer, session
from kraft.chaos.workload.transactions.processor import PROCESSED, _rounds
from kraft.chaos.workload.transactions.session import Batch
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import InitProducerIdResponse
from tests.unit.chaos.workload.stage import Stage, staged

LEDGER = TopicSpec("ledger", 2, 3, {"min.insync.replicas": "2"})
RESULTS = TopicSpec("results", 1, 3, {"min.insync.replicas": "2"})


def client(kind: str, stream: int, transactional_id: str, version: int = 2) -> WorkloadSpec:
    return WorkloadSpec(
        kind,
        stream,
        LEDGER.name,
        per_second=15.0,
        transactional_id=transactional_id,
        transaction_version=version,
    )


READER = WorkloadSpec("committed-consumer", 8, LEDGER.name)


def history_of(stage: Stage) -> TransactionHistory:
    return stage.workloads._around.transactions.history


def judged(stage: Stage) -> TransactionReport:
    """Both judges find nothing."""
    assert stage.oracles == set()
    assert check_history(stage.history).anomalies == []
    report = check_transactions(history_of(stage))
    assert report.anomalies == []
    return report


@pytest.fixture
def living_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CRASHING_SHARE", 0.0)
    monkeypatch.setattr(member, "FREEZING_SHARE", 0.0)
    monkeypatch.setattr(producer, "FREEZING_SHARE", 0.0)
    monkeypatch.setattr(producer, "DAWDLES_ODDS", 0.0)
    monkeypatch.setattr(member, "LEAVE_ODDS", 0.0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_commits_and_aborts(living_on: None, version: int) -> None:
    with staged(client("transactional-producer", 0, "t", version), READER, topics=(LEDGER,)) as stage:
        stage.simulation.run_for(6.0)
        stage.finish()
        report = judged(stage)
        assert report.counts["transactions committed"] > 10
        assert report.counts["transactions aborted"] > 2
        assert report.counts["records of transactions demanded"] > 30
        tailed = [poll for poll in history_of(stage).polls if not poll.final and poll.records]
        assert len(tailed) > 5
        committed = {
            value
            for one in history_of(stage).transactions
            if one.end is TransactionEnd.COMMITTED
            for _, _, value in one.acknowledged
        }
        final = {value for poll in history_of(stage).polls if poll.final for _, value in poll.records}
        assert final == committed


def test_two_producers_of_one_id_fence_each_other(living_on: None) -> None:
    clients = [client("transactional-producer", 0, "t"), client("zombie-producer", 1, "t")]
    with staged(*clients, READER, topics=(LEDGER,)) as stage:
        stage.simulation.run_for(8.0)
        assert stage.verdicts.coverage[session.FENCED] > 2
        stage.workloads.calm()
        stage.simulation.run_for(4.0)
        stage.finish()
        judged(stage)
        assert {one.process.partition("#")[0] for one in history_of(stage).transactions} == {
            "transactional-producer",
            "zombie-producer",
        }


def test_what_a_crashed_producer_left_open_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CRASHING_SHARE", 1.0)
    monkeypatch.setattr(base, "LIFE_S", (0.5, 1.5))
    with staged(client("transactional-producer", 0, "t"), READER, topics=(LEDGER,)) as stage:
        stage.simulation.run_for(10.0)
        stage.finish()
        report = judged(stage)
        assert report.counts["transactions open"] > 1
        assert any(one.status is OperationStatus.INFO for one in stage.sends)


def test_processors_make_one_output_of_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LIFE_S", (3.0, 6.0))
    monkeypatch.setattr(member, "FREEZE_AFTER_S", (1.0, 3.0))
    processors = [
        WorkloadSpec(
            "processor",
            number,
            LEDGER.name,
            per_second=10.0,
            group="g",
            transactional_id=f"p-{number}",
            output=RESULTS.name,
        )
        for number in (1, 2)
    ]
    workloads = (client("transactional-producer", 0, "t"), *processors)
    with staged(*workloads, topics=(LEDGER, RESULTS)) as stage:
        stage.simulation.run_for(10.0)
        stage.workloads.calm()
        since_s = stage.simulation.now
        stage.wait(lambda: not stage.workloads.groups_not_whole_since(since_s))
        stage.finish()
        report = judged(stage)
        assert stage.verdicts.coverage[PROCESSED] > 50
        assert report.counts["outputs judged"] > 50
        assert all(one.group == "g" for one in history_of(stage).transactions if one.tags)


def test_a_transaction_that_hangs_is_found(living_on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator does not know of the partition: nobody ends it."""

    async def verified(*_: object) -> None:
        """As if it was asked."""

    monkeypatch.setattr(ProducedTransaction, "_verify", verified)
    with staged(client("transactional-producer", 0, "t"), topics=(LEDGER,)) as stage:
        stage.simulation.run_for(2.0)
        stage.workloads.stop()
        stage.wait(lambda: not stage.workloads.undrained)
        stage.workloads.read_everything()
        stage.wait(lambda: stage.workloads.read)
        assert "hanging-transaction" in stage.oracles


def test_who_waits_for_a_partition_beyond_repair_gives_up_when_the_faults_are_over(
    living_on: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker of an earlier transaction is due there, and the coordinator takes no other one."""
    ask = session.TransactionSession._ask

    async def concurrent(self, request, version, answers):
        if answers is InitProducerIdResponse:
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        return await ask(self, request, version, answers)

    monkeypatch.setattr(session.TransactionSession, "_ask", concurrent)
    with staged(client("transactional-producer", 0, "t"), topics=(LEDGER,)) as stage:
        stage.workloads.calm()
        stage.simulation.run_for(1.0)
        assert stage.workloads.unserved_since(0.0)
        assert stage.workloads.undrained == ["transactional-producer#0"], "it asks again and again"
        monkeypatch.setattr(stage.cluster, "is_beyond_repair", lambda topic, partition: partition == 1)
        assert stage.workloads.unserved_since(0.0) == []
        stage.wait(lambda: not stage.workloads.undrained)


def test_what_a_processor_read_at_once_is_written_in_pieces_that_logs_take():
    values = tuple(b"%04d" % number + b"." * 100 for number in range(200))
    sources = tuple((((b"id", 0), number)) for number in range(200))
    rounds = list(
        _rounds([Batch(("results", 0), values, sources), Batch(("results", 1), values[:1], sources[:1])])
    )
    assert [len(together) for together in rounds] == [2] + [1] * (len(rounds) - 1)
    first = [batch for together in rounds for batch in together if batch.name == ("results", 0)]
    assert tuple(value for batch in first for value in batch.values) == values
    assert tuple(source for batch in first for source in batch.sources) == sources
    assert max(sum(len(value) + 32 for value in batch.values) for batch in first) <= 8_192


def test_nobody_dawdles_once_the_faults_are_over(living_on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those who wait for a write of its would find fault with the cluster."""
    monkeypatch.setattr(producer, "DAWDLES_ODDS", 1.0)
    monkeypatch.setattr(producer, "TIMEOUTS_MS", (20_000,))
    with staged(client("transactional-producer", 0, "t"), READER, topics=(LEDGER,)) as stage:
        told = stage.verdicts.coverage
        stage.simulation.run_for(6.0)
        assert (told[producer.DAWDLED], told[producer.COMMITTED] + told[producer.ABORTED]) == (1, 0)
        stage.workloads.calm()
        stage.simulation.run_for(3.0)
        assert told[producer.COMMITTED] + told[producer.ABORTED] > 2
        stage.finish()
        judged(stage)
