"""`kraft transactions`: list and describe them, find those that hang, abort one in a partition, fence producers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from kraft.cli.shared.admin_client import AdminClient, run_admin
from kraft.cli.shared.coordinators import Failure, end_with
from kraft.cli.shared.documents import Document
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_names, reflowed, require_text
from kraft.cli.shared.output import complain, console, print_json, print_line, show_rows
from kraft.cli.shared.scope import PARTITION_MAX, Scope, is_in, parse_scope
from kraft.cli.shared.times import MAX_MS, parse_duration_ms
from kraft.cli.transactions.hanging import Hanging, hanging, open_for, still_open
from kraft.cli.transactions.transaction_client import (
    EndMarker,
    Filters,
    ProducersOf,
    Transaction,
    TransactionClient,
    leaders,
    replicas_on,
)
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.protocol.schemas.producers import ProducerState
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
AT_REST = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""No transaction is open."""
TIMEOUT_MIN = 15
"""transaction.max.timeout.ms, in minutes: no transaction that a coordinator knows is open for longer."""
_ID_MAX = 2**63 - 1

app = typer.Typer(help="Transactions: what is open, what hangs, and its end.")

TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", help="The transactional id.", show_default=False)
]
BrokerOption = Annotated[
    int | None,
    typer.Option(
        "--broker-id", min=0, help="Ask this replica's broker instead of leaders.", show_default=False
    ),
]


def list_(
    state: Annotated[
        list[str] | None, typer.Option(help=f"Only those in this state: {', '.join(STATES)}.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(min=0, max=_ID_MAX, help="Only those of this producer.")
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="D", help="Only those open for longer: PnDTnHnMnS (PT5M), or ms.", show_default=False
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="RE2", help="Only ids that match as a whole (KIP-1152).", show_default=False),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List the transactional ids of all brokers, each with its last transaction.

    Exit code 0: listed; 1: a broker refused; 2: wrong usage; 3: no broker, or not every broker, answers: what the
    others coordinate is shown.
    """
    filters = Filters(
        parse_names(state or [], STATES, "--state"),
        producer_id or [],
        -1 if duration is None else _duration_ms(duration),
        None if pattern is None else require_text(pattern, "--pattern"),
    )

    async def work(admin: AdminClient) -> tuple[list[Transaction], list[UserError]]:
        return await TransactionClient(admin).listed(filters)

    transactions, failures = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    _show_transactions(transactions, as_json=as_json)
    for failure in failures:
        complain(failure)
    if failures:
        raise typer.Exit(max(failure.exit_code for failure in failures))


def describe(
    transactional_id: TransactionalId,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show one transactional id: its producer, and the partitions of its open transaction.

    While a transaction ends, the partitions are those whose marker is not written yet. Exit code 0: shown; 1: there is
    no such id, or it was refused; 2: wrong usage; 3: no broker, or no coordinator, answers.
    """
    require_text(transactional_id, "the transactional id")

    async def work(admin: AdminClient) -> Transaction | None:
        return await TransactionClient(admin).described(transactional_id)

    found = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if found is None:
        raise _unknown(transactional_id)
    if as_json:
        print_json({"transactions": [_document(found, _now_ms())]})
        return
    _show_transactions([found], as_json=False)
    if found.partitions:
        print_line("")
        show_rows(["topic", "partition"], found.partitions)


def describe_producers(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:P,…]…", help="Topics, or partitions of them.", show_default=False),
    ],
    broker_id: BrokerOption = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the producers that logs know, and where each one's open transaction starts.

    Exit code 0: shown; 1: there is no such topic or partition, or no such replica on the broker; 2: wrong usage;
    3: a broker does not answer: what others know is shown.
    """
    scope = parse_scope(topics)

    async def work(admin: AdminClient) -> ProducersOf:
        return await TransactionClient(admin).producers(await _replicas(admin, scope, broker_id))

    told = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json(
            {
                "partitions": [
                    {**key._asdict(), "producers": [_producer_document(one) for one in producers]}
                    for key, producers in sorted(told.found.items())
                ]
            }
        )
    else:
        _show_producers(told.found)
    end_with({str(key): failure for key, failure in told.failures.items()})


def find_hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T[:P,…]", help="Only there; none: everywhere.", show_default=False),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(min=0, max=PARTITION_MAX, help="Only this one of the topic.", show_default=False),
    ] = None,
    broker_id: BrokerOption = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_MS // 60_000, metavar="MINUTES", help="Only those whose last record is older."
        ),
    ] = TIMEOUT_MIN,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end there.

    Readers of committed records get no further than their start: `kraft transactions abort` ends them. Exit code 0:
    all were looked through, whether some hang or not; 1: refused; 2: wrong usage; 3: not all could be looked through:
    what was found is shown.
    """
    if partition is not None and (len(topic or []) != 1 or ":" in (topic or [""])[0]):
        raise UserError("--partition goes with one --topic", EXIT_USAGE)
    scope = parse_scope([one if partition is None else f"{one}:{partition}" for one in topic or []])

    async def work(admin: AdminClient) -> tuple[list[Hanging], dict[TopicPartition, Failure]]:
        replicas = await _replicas(admin, scope or None, broker_id)
        return await _found_hanging(TransactionClient(admin), replicas, max_transaction_timeout * 60_000)

    found, failures = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    _show_hanging(found, as_json=as_json)
    end_with({str(key): failure for key, failure in failures.items()})


async def _found_hanging(
    client: TransactionClient, replicas: dict[TopicPartition, int], longer_than_ms: int
) -> tuple[list[Hanging], dict[TopicPartition, Failure]]:
    """Raises UserError where a coordinator does not tell: what it would end is not hanging."""
    first = await client.producers(replicas)
    candidates = open_for(first, _now_ms(), longer_than_ms)
    if not candidates:
        return [], first.failures
    producer_ids = sorted({one.producer.producer_id for one in candidates})
    transactions, unknown = await client.listed(Filters(producer_ids=producer_ids))
    if unknown:
        raise UserError(f"it cannot be told which transactions hang: {unknown[0]}", EXIT_UNDECIDED)
    by_producer: dict[int, list[Transaction]] = {}
    for transaction in transactions:
        by_producer.setdefault(transaction.producer_id, []).append(transaction)
    suspects = hanging(candidates, by_producer)
    second = await client.producers({one.open.key: replicas[one.open.key] for one in suspects})
    return still_open(suspects, second), {**first.failures, **second.failures}


def abort(
    topic: Annotated[str, typer.Option("--topic", help="The topic.", show_default=False)],
    partition: Annotated[
        int, typer.Option(min=0, max=PARTITION_MAX, help="The partition.", show_default=False)
    ],
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, max=_ID_MAX, help="Where the transaction starts.", show_default=False),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(min=0, max=_ID_MAX, help="Instead: the producer's id …", show_default=False),
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(min=0, max=2**15 - 1, help="… its epoch …", show_default=False)
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(min=-1, max=2**31 - 1, help="… and its coordinator's.", show_default=False),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Abort a transaction that hangs in a partition: an abort marker is written there.

    Nobody asks the coordinator: one that would still end the transaction ends it elsewhere as it likes. Exit code 0:
    aborted; 1: no transaction starts there, or it was refused; 2: wrong usage; 3: it cannot be told.
    """
    key = TopicPartition(require_text(topic, "--topic"), partition)
    named = (producer_id, producer_epoch, coordinator_epoch)
    given = [one is not None for one in named]
    if any(given) if start_offset is not None else not all(given):
        raise UserError(_WHICH, EXIT_USAGE)

    async def work(admin: AdminClient) -> EndMarker:
        await _replicas(admin, {key.topic: frozenset({key.partition})}, None)
        client = TransactionClient(admin)
        if producer_id is not None and producer_epoch is not None and coordinator_epoch is not None:
            marker = EndMarker(producer_id, producer_epoch, coordinator_epoch)
        else:
            marker = await _marker_at(admin, client, key, start_offset or 0)
        await client.write_abort(key, marker)
        return marker

    marker = run_admin(bootstrap_server, work)
    if as_json:
        print_json(
            {
                "transactions": [
                    {
                        "transactional_id": None,
                        "producer_id": marker.producer_id,
                        "epoch": marker.producer_epoch,
                        "state": "CompleteAbort",
                        "partitions": [key._asdict()],
                        "age_ms": None,
                    }
                ]
            }
        )
    else:
        console.print(
            f"aborted the transaction of producer {marker.producer_id} in {key}", markup=False, soft_wrap=True
        )


_WHICH = (
    "say which transaction, with --start-offset N (kraft transactions find-hanging shows it), or with --producer-id,"
    " --producer-epoch and --coordinator-epoch"
)


async def _marker_at(
    admin: AdminClient, client: TransactionClient, key: TopicPartition, start_offset: int
) -> EndMarker:
    """Of the transaction that starts there. Raises UserError."""
    told = await client.producers({key: (await leaders(admin, [key.topic]))[key]})
    if key in told.failures:
        code, text = told.failures[key]
        raise UserError(f"the producers of {key} are not known: {text} ({code.name})", EXIT_UNDECIDED)
    opened = open_for(told, 0, -1)
    for one in opened:
        if one.producer.current_txn_start_offset == start_offset:
            return EndMarker(
                one.producer.producer_id, one.producer.producer_epoch, one.producer.coordinator_epoch
            )
    starts = (
        ", ".join(str(one.producer.current_txn_start_offset) for one in opened[:3]) or "none is open there"
    )
    raise UserError(f"no open transaction starts at offset {start_offset} of {key}; starts: {starts}")


def fence(
    transactional_ids: Annotated[
        list[str], typer.Argument(metavar="ID…", help="Transactional ids.", show_default=False)
    ],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Fence the producers of transactional ids: open transactions are aborted, and producers that run get an error.

    Exit code 0: all are fenced; 1: an id is not there, or was refused, or no broker answers; 2: wrong usage; 3: it
    cannot be told.
    """
    ids = [require_text(one, "a transactional id") for one in dict.fromkeys(transactional_ids)]

    async def work(admin: AdminClient) -> dict[str, ProducerIdAndEpoch | Failure]:
        client = TransactionClient(admin)
        for one in ids:  # before any is fenced: InitProducerId would make it
            if await client.described(one) is None:
                raise _unknown(one)
        return {one: await client.fence(one) for one in ids}

    done = run_admin(bootstrap_server, work)
    failures = {one: result for one, result in done.items() if not isinstance(result, ProducerIdAndEpoch)}
    rows = [[one, *result] for one, result in done.items() if isinstance(result, ProducerIdAndEpoch)]
    if as_json:
        columns = ("transactional_id", "producer_id", "epoch")
        print_json({"transactional_ids": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        show_rows(["transactional id", "producer", "epoch"], rows)
    end_with({f"transactional id {one}": failure for one, failure in failures.items()})


async def _replicas(
    admin: AdminClient, scope: Scope | None, broker_id: int | None
) -> dict[TopicPartition, int]:
    """Whom to ask for each partition of the scope; None: of all. Raises UserError for one that is not there."""
    names = None if scope is None else list(scope)
    found = await leaders(admin, names)
    for name, numbers in (scope or {}).items():
        for number in sorted(numbers or ()):
            if TopicPartition(name, number) not in found:
                raise UserError(f"topic {name} has no partition {number}")
    if broker_id is not None:
        found = await replicas_on(admin, names, broker_id)
        if not found:
            raise UserError(f"broker {broker_id} has no replica of these partitions")
    return {key: one for key, one in found.items() if scope is None or is_in(scope, *key)}


def _unknown(transactional_id: str) -> UserError:
    return UserError(
        f"there is no transactional id {transactional_id}; `kraft transactions list` shows those that there are"
    )


def _duration_ms(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_MS)) and int(text) <= MAX_MS:
        return int(text)
    return min(parse_duration_ms(text, "--duration (or milliseconds)"), MAX_MS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _document(one: Transaction, now_ms: int) -> Document:
    """As the JSON of all these commands has a transaction."""
    return {
        "transactional_id": one.transactional_id,
        "producer_id": one.producer_id,
        "epoch": one.epoch,
        "state": one.state,
        "partitions": [key._asdict() for key in one.partitions],
        "age_ms": _age_ms(one, now_ms),
        "coordinator": one.coordinator,
        "timeout_ms": one.timeout_ms,
    }


def _age_ms(one: Transaction, now_ms: int) -> int | None:
    """Since it began; None where none is open. (A coordinator keeps the time until the next begins.)"""
    if one.started_ms is None or one.state in AT_REST:
        return None
    return max(now_ms - one.started_ms, 0)


def _show_transactions(transactions: Sequence[Transaction], *, as_json: bool) -> None:
    documents = [_document(one, _now_ms()) for one in transactions]
    if as_json:
        print_json({"transactions": documents})
        return
    show_rows(
        ["id", "producer", "epoch", "state", "coordinator", "partitions", "age s"],
        [
            [
                one["transactional_id"],
                one["producer_id"],
                one["epoch"],
                one["state"],
                one["coordinator"],
                len(one["partitions"]) or None,
                _seconds(one["age_ms"]),
            ]
            for one in documents
        ],
    )


def _show_hanging(found: Sequence[Hanging], *, as_json: bool) -> None:
    now_ms = _now_ms()
    if as_json:
        print_json({"transactions": [_hanging_document(one, now_ms) for one in found]})
        return
    if not found:
        console.print("no transaction hangs")
    show_rows(
        ["topic", "partition", "start offset", "producer", "epoch", "id", "age s"],
        [
            [
                *one.open.key,
                one.open.producer.current_txn_start_offset,
                one.open.producer.producer_id,
                one.open.producer.producer_epoch,
                None if one.holder is None else one.holder.transactional_id,
                _seconds(one.open.age_ms(now_ms)),
            ]
            for one in found
        ],
    )


def _hanging_document(one: Hanging, now_ms: int) -> Document:
    """One a partition: `state` is that of the id's coordinator, if a transactional id has the producer."""
    producer, holder = one.open.producer, one.holder
    return {
        "transactional_id": None if holder is None else holder.transactional_id,
        "producer_id": producer.producer_id,
        "epoch": producer.producer_epoch,
        "state": None if holder is None else holder.state,
        "partitions": [one.open.key._asdict()],
        "age_ms": one.open.age_ms(now_ms),
        "start_offset": producer.current_txn_start_offset,
        "coordinator_epoch": producer.coordinator_epoch,
    }


def _producer_document(producer: ProducerState) -> Document:
    """-1 where there is nothing to know, as in Kafka."""
    return {
        "producer_id": producer.producer_id,
        "epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "transaction_start_offset": producer.current_txn_start_offset,
    }


def _show_producers(found: Mapping[TopicPartition, Sequence[ProducerState]]) -> None:
    now_ms = _now_ms()
    rows = [
        [
            *key,
            one.producer_id,
            one.producer_epoch,
            _known(one.coordinator_epoch),
            _known(one.last_sequence),
            None if one.last_timestamp < 0 else _seconds(max(now_ms - one.last_timestamp, 0)),
            _known(one.current_txn_start_offset),
        ]
        for key, producers in sorted(found.items())
        for one in producers
    ]
    show_rows(["topic", "partition", "producer", "epoch", "coord epoch", "seq", "idle s", "open from"], rows)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f}"


app.command("list")(reflowed(list_))
app.command()(reflowed(describe))
app.command("describe-producers")(reflowed(describe_producers))
app.command("find-hanging")(reflowed(find_hanging))
app.command()(reflowed(abort))
app.command()(reflowed(fence))
