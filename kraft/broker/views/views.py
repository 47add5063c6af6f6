"""The views of one broker: what it knows of itself and no other node does, by name, as JSON values.

A node's console asks each broker for them (`kraft.http.console.asking`): its own directly, the others through
DescribeConfigs, as a resource of kraft's own type that needs CLUSTER_ACTION (`kraft.broker.handlers.broker_views`). A
view is a list of (key, value): a key that comes again has more of the same list. What costs O(logs) is done in steps,
with other work in between; nothing is done unless somebody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from kraft.broker.coordinators.group_lag import GroupLag
from kraft.broker.handlers.configs import broker_entries
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.services import BrokerServices
from kraft.broker.views.configs import config_rows
from kraft.broker.views.disks import DiskHistory
from kraft.broker.views.groups import group_document, group_rows
from kraft.broker.views.history import RateHistory
from kraft.broker.views.times import request_rows
from kraft.broker.views.view_error import ViewError
from kraft.environment import Environment
from kraft.network.session import Session
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.partition import Partition
from partitions.topic_partition import TopicPartition

LOGS_PER_STEP: Final = 250
SIZES_FRESH_S: Final = 10.0
"""Of all logs in sum: they are looked at one by one."""
CLIENTS_MAX: Final = 500
PARTITIONS_MAX: Final = 10_000
GROUPS_MAX: Final = 5_000
STILL_GROUPS_MAX: Final = 100

Pairs: TypeAlias = list[tuple[str, Any]]
Args: TypeAlias = Mapping[str, Any]


class BrokerViews:
    """Made when the broker starts to serve."""

    def __init__(
        self,
        services: BrokerServices,
        environment: Environment,
        metrics: BrokerMetrics,
        group_lag: GroupLag,
        history: RateHistory,
        sessions: Callable[[], Iterable[Session]],
        started_at_ms: int,
    ) -> None:
        self._services = services
        self._environment = environment
        self._metrics = metrics
        self._group_lag = group_lag
        self._history = history
        self._sessions = sessions
        self._started_at_ms = started_at_ms
        self._disks = DiskHistory()
        self._sizes_known: tuple[float, dict[str, int], dict[str, int]] = (float("-inf"), {}, {})
        self._views: Mapping[str, Callable[[Args], Awaitable[Pairs]]] = {
            "summary": self._summary,
            "topics": self._topics,
            "partitions": self._partitions,
            "broker": self._broker,
            "groups": self._groups,
            "group": self._group,
        }

    async def tell(self, view: str, args: Args) -> Pairs:
        """One view. Raises ViewError: there is none of that name, or the arguments are not right."""
        make = self._views.get(view)
        if make is None:
            raise ViewError(f"this broker has no view {view[:50]!r}; it may be of an older version")
        try:
            return await make(args)
        except (KeyError, TypeError, ValueError) as error:
            raise ViewError(f"the view {view} is asked for wrongly: {error!r}"[:300]) from error

    async def sample_disks(self) -> None:
        """Called once a minute: what the disks' fill rate is told from."""
        for path in self._services.logs.directory_paths:
            space = await self._space(path)
            if space is not None:
                self._disks.sample(path, self._environment.now_ms(), space[1])

    # -- the views

    async def _summary(self, args: Args) -> Pairs:
        """How it is, in sum. `history`: whether that is wanted, too."""
        logs = self._services.logs
        sizes, counts = await self._sizes()
        disks = [
            {
                "path": path,
                "error": "KAFKA_STORAGE_ERROR" if path in logs.failed_directories else None,
                **await self._room(path),
                "size_bytes": sizes.get(path, 0),
                "replicas": counts.get(path, 0),
            }
            for path in logs.directory_paths
        ]
        now_ms = self._environment.now_ms()
        still = sorted(self._group_lag.history.standing_still(now_ms).items(), key=lambda one: -one[1][0])
        states = self._group_lag.view().states
        return [
            ("at_ms", now_ms),
            ("started_at_ms", self._started_at_ms),
            ("rates", self._history.rates()),
            ("connections", sum(1 for _ in self._sessions())),
            ("log_dirs", disks),
            ("size_bytes", sum(sizes.values())),
            ("groups", sum(states.values())),
            (
                "still_groups",
                [
                    {"group_id": group_id, "lag": lag, "since_ms": since_ms}
                    for group_id, (lag, since_ms) in still[:STILL_GROUPS_MAX]
                ],
            ),
            ("metadata_offset", self._services.metadata.image.offset),
            *((("history", self._history.document()),) if args.get("history") else ()),
        ]

    async def _topics(self, args: Args) -> Pairs:
        """A row for each topic with logs here: name, bytes of the logs that lead, of all, records, and counters of
        bytes in, bytes out, records in (None where the topic has no counters of its own)."""
        found: dict[str, list[int]] = {}
        async for key, log in self._each_log():
            row = found.setdefault(key.topic, [0, 0, 0])
            size_bytes = _size_bytes(log) or 0
            row[1] += size_bytes
            partition = self._partition(key)
            if partition is not None and partition.is_leader:
                row[0] += size_bytes
                row[2] += max(0, partition.high_watermark - partition.log_start_offset)
        counters = self._metrics.topics
        pairs: Pairs = [("at_ms", self._environment.now_ms())]
        rows: list[list[Any]] = []
        for name, sums in found.items():
            of_topic = counters.known(name)
            has_own = of_topic is not None or not counters.is_full
            rows.append(
                [name, *sums]
                + (
                    [of_topic.bytes_in, of_topic.bytes_out, of_topic.messages_in]
                    if of_topic is not None
                    else [0 if has_own else None] * 3
                )
            )
        pairs += [("rows", rows[at : at + LOGS_PER_STEP]) for at in range(0, len(rows), LOGS_PER_STEP)]
        return pairs

    async def _partitions(self, args: Args) -> Pairs:
        """The replicas of a `topic` here, those in `ranges` of numbers, first and last: number, log start, log end,
        high watermark, bytes, directory, and by follower, where this broker leads, the end of its log."""
        topic = str(args["topic"])
        wanted = chain.from_iterable(range(int(first), int(last) + 1) for first, last in args["ranges"])
        rows: list[list[Any]] = []
        for count, number in enumerate(islice(wanted, PARTITIONS_MAX), 1):
            if count % LOGS_PER_STEP == 0:
                await asyncio.sleep(0)
            row = self._partition_row(TopicPartition(topic, number))
            if row is not None:
                rows.append(row)
        return [("rows", rows[at : at + LOGS_PER_STEP]) for at in range(0, len(rows), LOGS_PER_STEP)]

    async def _broker(self, args: Args) -> Pairs:
        """Its disks in time, requests by phase, clients."""
        sessions = list(self._sessions())
        clients = [_client(session) for session in sessions[:CLIENTS_MAX]]
        now_ms = self._environment.now_ms()
        paths = self._services.logs.directory_paths
        return [
            *await self._summary({"history": True}),
            ("configs", config_rows(broker_entries(self._services))),
            ("days_left", {path: self._disks.days_left(path, now_ms) for path in paths}),
            ("requests", request_rows(self._services.request_times)),
            ("clients_total", len(sessions)),
            ("clients", clients),
        ]

    async def _groups(self, args: Args) -> Pairs:
        """The groups that it coordinates."""
        self._group_lag.watch()
        rows = await group_rows(self._services, self._group_lag, self._environment.now_ms())
        rows = rows[:GROUPS_MAX]
        return [("rows", rows[at : at + LOGS_PER_STEP]) for at in range(0, len(rows), LOGS_PER_STEP)]

    async def _group(self, args: Args) -> Pairs:
        """One `group_id`, whole; nothing if there is none here."""
        self._group_lag.watch()
        document = await group_document(
            self._services, self._group_lag, str(args["group_id"]), self._environment.now_ms()
        )
        return list(document.items())

    # -- parts

    async def _each_log(self) -> AsyncIterator[tuple[TopicPartition, PartitionLog]]:
        logs = self._services.logs
        for count, (key, log) in enumerate(list(logs.logs.items()), 1):
            if count % LOGS_PER_STEP == 0:
                await asyncio.sleep(0)
            if logs.get(key) is log:
                yield key, log

    async def _sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes of logs, and how many there are, by directory; `SIZES_FRESH_S` old at most."""
        known_s, sizes, counts = self._sizes_known
        if known_s + SIZES_FRESH_S > self._services.loop.time():
            return sizes, counts
        sizes, counts = await self._look_at_sizes()
        self._sizes_known = (self._services.loop.time(), sizes, counts)
        return sizes, counts

    async def _look_at_sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        sizes: dict[str, int] = {}
        counts: dict[str, int] = {}
        async for key, log in self._each_log():
            path = self._services.logs.directory_of(key)
            sizes[path] = sizes.get(path, 0) + (_size_bytes(log) or 0)
            counts[path] = counts.get(path, 0) + 1
        return sizes, counts

    async def _space(self, path: str) -> tuple[int, int] | None:
        """Total and usable bytes; None while the disk does not tell."""
        try:
            total_bytes, usable_bytes = await self._services.logs.space(path)
        except OSError:
            return None
        return total_bytes, usable_bytes

    async def _room(self, path: str) -> dict[str, int | None]:
        space = await self._space(path)
        return dict(zip(("total_bytes", "usable_bytes"), space or (None, None), strict=True))

    def _partition(self, key: TopicPartition) -> Partition | None:
        try:
            return self._services.replicas.partition(key)
        except PartitionError:
            return None

    def _partition_row(self, key: TopicPartition) -> list[Any] | None:
        log, partition = self._services.logs.get(key), self._partition(key)
        if log is None or partition is None:
            return None
        leading = partition.leadership
        followers = (
            {} if leading is None else {one.broker_id: one.log_end_offset for one in leading.followers}
        )
        return [
            key.partition,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            _size_bytes(log),
            self._services.logs.directory_of(key),
            None if leading is None else {str(broker): end for broker, end in followers.items()},
        ]


def _size_bytes(log: PartitionLog) -> int | None:
    """None while its disk does not tell."""
    try:
        return log.size_bytes
    except (LogError, OSError):
        return None


def _client(session: Session) -> dict[str, Any]:
    host, port = session.peer
    return {
        "client_id": session.client_id,
        "software_name": session.client_software_name,
        "software_version": session.client_software_version,
        "address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "listener": session.listener_name,
        "principal": session.principal,
    }


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as their ranges, first and last: the name of a view is to be short."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def merged(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a view as one document."""
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document and isinstance(value, list):
            document[key] += value
        else:
            document[key] = list(value) if isinstance(value, list) else value
    return document
