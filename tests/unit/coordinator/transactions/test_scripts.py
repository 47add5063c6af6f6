"""Plays the stories under scripts/: one shard of transactions, its producers, its log, its markers and its clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions import records
from kraft.coordinator.transactions.context import TransactionSettings
from kraft.coordinator.transactions.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    SendMarkers,
)
from kraft.coordinator.transactions.transaction import STATES_BY_NAME, State, Transaction, by_topic
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import InitProducerIdResponse
from kraft.protocol.schemas.transactions import DescribedTransaction, EndTxnResponse
from partitions.topic_partition import TopicPartition
from tests.support.golden import check_script, scripts_beside
from tests.support.transactions_world import TransactionsWorld, partition, producer

SETTINGS = {
    "max-timeout": "max_timeout_ms",
    "expiration": "id_expiration_ms",
    "check-interval": "id_expiration_check_interval_ms",
    "ids-max": "ids_max",
    "wait": "markers_wait_ms",
    "waiting-per-id": "waiting_per_id_max",
    "waiting-max": "waiting_max",
    "max-record": "record_max_bytes",
}
STATES_BY_NUMBER = {state.number: state for state in State}


class Story:
    """Producers go by their names, and keep what they were told: producer id and epoch. Their transactional id is `t`
    unless `id=` says otherwise."""

    def __init__(self) -> None:
        self.world = TransactionsWorld()
        self.has: dict[str, ProducerIdAndEpoch] = {}
        self.logged = self.told = self.sent = 0
        self.issued: list[SendMarkers] = []
        """All markers so far, to acknowledge."""

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        lines = getattr(self, "do_" + command.replace("-", "_"))(arguments, options) or []
        return [*self._news(), *lines]

    def do_shard(self, arguments: list[str], options: dict[str, str]) -> None:
        """shard [level=N] [SETTING=N…]: one that knows of nobody; level is that of transaction.version"""
        self.__init__()  # type: ignore[misc]
        level = int(options.pop("level", "2"))
        changed: dict[str, Any] = {SETTINGS[name]: int(value) for name, value in options.items()}
        self.world = TransactionsWorld(replace(TransactionSettings(), **changed), level)

    def do_level(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.level = int(arguments[0])

    # Requests

    def do_init(self, arguments: list[str], options: dict[str, str]) -> None:
        """init PRODUCER [has=PRODUCER_ID/EPOCH] [again] [timeout=MS]: `again` says what it has (KIP-360)"""
        name = arguments[0]
        expected = self._has(name, options) if "again" in arguments or "has" in options else None
        timeout_ms = int(options.get("timeout", "60000"))
        self.world.ask(name, InitProducer(_id(options), timeout_ms, expected, None))

    def do_add(self, arguments: list[str], options: dict[str, str]) -> None:
        """add PRODUCER TOPIC-PARTITION… [v=TRANSACTION_VERSION] [has=] [waits=no]"""
        self._add(arguments, options, verify_only=False)

    def do_verify(self, arguments: list[str], options: dict[str, str]) -> None:
        self._add(arguments, options, verify_only=True)

    def _add(self, arguments: list[str], options: dict[str, str], *, verify_only: bool) -> None:
        name, *partitions = arguments
        named = frozenset(partition(one) for one in partitions)
        version = int(options.get("v", "2"))
        waits = options.get("waits") != "no"
        request = AddPartitions(_id(options), self._has(name, options), named, verify_only, version, waits)
        self.world.ask(name, request)

    def do_commit(self, arguments: list[str], options: dict[str, str]) -> None:
        """commit PRODUCER [v=TRANSACTION_VERSION] [has=]"""
        self._end(arguments[0], options, is_commit=True)

    def do_abort(self, arguments: list[str], options: dict[str, str]) -> None:
        self._end(arguments[0], options, is_commit=False)

    def _end(self, name: str, options: dict[str, str], *, is_commit: bool) -> None:
        version = int(options.get("v", "2"))
        request = EndTransaction(_id(options), self._has(name, options), is_commit, version, None)
        self.world.ask(name, request)

    def _has(self, name: str, options: dict[str, str]) -> ProducerIdAndEpoch:
        return producer(options["has"]) if "has" in options else self.has[name]

    def do_describe(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.ask("admin", DescribeTransaction(arguments[0] if arguments else ""))

    def do_list(self, arguments: list[str], options: dict[str, str]) -> None:
        """list [states=STATE,…] [producers=N,…] [longer=MS] [pattern=RE2]"""
        states = tuple(filter(None, options.get("states", "").split(",")))
        producers = frozenset(int(one) for one in options.get("producers", "").split(",") if one)
        request = ListTransactions(
            states, producers, int(options.get("longer", "-1")), options.get("pattern")
        )
        self.world.ask("admin", request)

    # Markers, topics, time, crashes

    def do_written(self, arguments: list[str], options: dict[str, str]) -> None:
        """written [N] [TOPIC-PARTITION…]: markers of the last order, or of the N-th, stand: all, or these"""
        numbers = [int(one) for one in arguments if one.isdigit()]
        sent = self.issued[numbers[0] - 1 if numbers else -1]
        named = {partition(one) for one in arguments if not one.isdigit()}
        self.world.written(sent, named or sent.partitions)

    def do_overtaken(self, arguments: list[str], options: dict[str, str]) -> None:
        """overtaken TOPIC-PARTITION…: these refuse the markers of the last order for a later epoch of the producer"""
        self.world.written(self.issued[-1], {partition(one) for one in arguments}, is_overtaken=True)

    def do_delete_topic(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.delete_topics(arguments)

    def do_tick(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.tick(int(arguments[0]))

    def do_resume(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.resume()

    def do_hold_commits(self, arguments: list[str], options: dict[str, str]) -> None:
        """hold-commits: from now on what is written is not committed"""
        self.world.is_committing = False

    def do_commit_log(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.is_committing = True
        self.world.commit()

    def do_crash(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """crash: another coordinator loads the log"""
        lost = len(self.world.log) - self.world.committed
        waiting = [client for client, _ in self.world.asked.values()]
        self.logged -= lost
        self.world.crash()
        told = [f"{client}: hears nothing" for client in waiting]
        return [*([f"lost: {lost}"] if lost else []), *told]

    def do_log(self, arguments: list[str], options: dict[str, str]) -> None:
        """log ID STATE PRODUCER_ID/EPOCH [TOPIC-PARTITION…] [v=] [timeout=]: written before a crash"""
        transactional_id, state, has, *named = arguments
        producer_id, epoch = producer(has)
        transaction = Transaction(
            transactional_id,
            producer_id,
            epoch,
            int(options.get("timeout", "60000")),
            STATES_BY_NAME[state],
            {partition(one) for one in named},
            started_ms=self.world.now.wall_ms,
            updated_ms=self.world.now.wall_ms,
            client_version=int(options.get("v", "2")),
        )
        self.world.log.append(records.encode(transactional_id, transaction.to_value(), 1))
        self.world.committed = self.logged = len(self.world.log)
        self.world.crash()

    # What is told

    def do_counters(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        counters = self.world.counters
        names = ("committed", "aborted", "timed_out", "fenced", "completion_ms", "expired_ids", "concurrent")
        return [" ".join(f"{name}={getattr(counters, name)}" for name in names)]

    def do_states(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        since_ms = self.world.shard.oldest_open_since_ms
        ago = "none open" if since_ms is None else f"oldest for {self.world.now.wall_ms - since_ms} ms"
        return [" ".join([*self.world.shard.states(), "-", ago])]

    def _news(self) -> list[str]:
        world = self.world
        written = world.log[self.logged :]
        orders = world.markers[:]
        world.markers.clear()
        self.issued += orders
        answers = world.answers[:]
        world.answers.clear()
        self.logged = len(world.log)
        return [
            *(self._record(one.key, one.value) for one in written),
            *(self._order(one) for one in orders),
            *(self._answer(*one) for one in answers),
        ]

    def _record(self, key: bytes, value: bytes | None) -> str:
        transactional_id = records.KEY.decode(key).transactional_id
        if value is None:
            return f"log: {transactional_id} is gone"
        read = records.VALUE.decode(value)
        state = STATES_BY_NUMBER[read.transaction_status]
        parts = [f"log: {transactional_id} {state.kafka_name} {read.producer_id}/{read.producer_epoch}"]
        if read.transaction_partitions is not None:
            listed = [
                f"{one.topic}-{number}" for one in read.transaction_partitions for number in one.partition_ids
            ]
            parts.append(" ".join(listed) or "no partitions")
        if value[1] == 0:
            parts.append("as version 0")
        if read.previous_producer_id not in (read.producer_id, -1):
            parts.append(f"was {read.previous_producer_id}")
        if read.next_producer_id != -1:
            parts.append(f"then {read.next_producer_id}")
        return ", ".join(parts)

    def _order(self, sent: SendMarkers) -> str:
        kind = "commit" if sent.marker.is_commit else "abort"
        producer_id, epoch = sent.marker.producer
        return (
            f"send {len(self.issued)}: {kind} {producer_id}/{epoch} of version {sent.marker.transaction_version} to "
            + _partitions(sent.partitions)
        )

    def _answer(self, client: str, request: Any, response: Any) -> str:
        if isinstance(response, InitProducerIdResponse | EndTxnResponse):
            if response.error_code:
                return f"{client}: {ErrorCode(response.error_code).name}"
            self.has[client] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return f"{client}: has {response.producer_id}/{response.producer_epoch}"
        if isinstance(response, dict):
            codes = {code.name for code in response.values()}
            if len(codes) < 2:
                return f"{client}: {codes.pop() if codes else 'no partitions'}"
            return f"{client}: " + ", ".join(f"{one} {code.name}" for one, code in response.items())
        if isinstance(response, ErrorCode):
            return f"{client}: {response.name}"
        if isinstance(response, DescribedTransaction):
            return f"{client}: {_described(response)}"
        listed, unknown = response
        names = [f"{one.transactional_id}={one.producer_id}:{one.transaction_state}" for one in listed]
        return " ".join([f"{client}:", *(names or ["none"]), *(f"unknown:{name}" for name in unknown)])


def _described(response: DescribedTransaction) -> str:
    if response.error_code:
        return ErrorCode(response.error_code).name
    topics = " ".join(f"{one.topic}:{one.partitions}" for one in response.topics)
    return (
        f"{response.transaction_state} {response.producer_id}/{response.producer_epoch}, timeout "
        f"{response.transaction_timeout_ms}, since {response.transaction_start_time_ms}, {topics or 'no topics'}"
    )


def _id(options: dict[str, str]) -> str:
    return options.get("id", "t")


def _partitions(partitions: frozenset[TopicPartition]) -> str:
    return " ".join(f"{topic}-{number}" for topic, numbers in by_topic(partitions) for number in numbers)


@pytest.mark.parametrize("script", scripts_beside(__file__), ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    check_script(script, Story().play)
