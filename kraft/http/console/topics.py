"""`/api/topics` and `/api/topics/{name}`: structure from the image, sizes, offsets and rates from the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraft.broker.handlers.configs import topic_entries
from kraft.broker.views.configs import config_rows
from kraft.broker.views.views import PARTITIONS_MAX, ranges
from kraft.dynamic_configs import dynamic_log_defaults
from kraft.http.console.asking import Remembered
from kraft.http.console.cluster import Cluster, Document
from kraft.http.console.paging import Page, in_order
from kraft.http.console.structure import INTERNAL, STATES, TopicSeen, partition_states, state_counts
from kraft.protocol.texts import uuid_text
from partitions.log.config import LogConfig
from quorum.metadata.image import PartitionImage
from quorum.metadata.records import RECOVERED, TOPIC_RESOURCE

ROWS_PER_STEP: Final = 2_000
TOPICS_PER_STEP: Final = 50
"""Each of which has its configs put together."""
RATE_OVER_MAX_MS: Final = 60_000
"""Two looks that are further apart make no rate."""
MEASURES: Final = ("size_bytes", "records", "bytes_in_per_s", "bytes_out_per_s", "messages_in_per_s")
TOPIC_SORTS: Final = ("name", "partitions", "replication_factor", *MEASURES, *STATES[:4])
PARTITION_SORTS: Final = ("partition", "leader", "size_bytes", "log_end_offset", "lag")
MEASURED_SORTS: Final = frozenset(("size_bytes", "log_end_offset", "lag"))


class Measured(NamedTuple):
    """A topic, over all brokers that told; None is not known."""

    size_bytes: int | None
    records: int | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    messages_in_per_s: float | None


UNKNOWN: Final = Measured(None, None, None, None, None)


class TopicRates:
    """The rates of topics on one broker, from two of its views."""

    def __init__(self) -> None:
        self._at_ms = 0
        self._counters: dict[str, Sequence[int | None]] = {}
        self._rates: dict[str, tuple[float | None, ...]] = {}

    def take(self, document: Mapping[str, Any]) -> Mapping[str, tuple[float | None, ...]]:
        """Of bytes in, bytes out and records in, by topic; a view that was taken before changes nothing."""
        at_ms = document["at_ms"]
        if at_ms == self._at_ms:
            return self._rates
        over_ms = at_ms - self._at_ms
        counters = {row[0]: row[4:7] for row in document.get("rows", ())}
        self._rates = (
            {
                name: _rates(self._counters[name], values, over_ms)
                for name, values in counters.items()
                if name in self._counters
            }
            if 0 < over_ms <= RATE_OVER_MAX_MS
            else {}
        )
        self._at_ms, self._counters = at_ms, counters
        return self._rates


def _rates(before: Sequence[int | None], now: Sequence[int | None], over_ms: int) -> tuple[float | None, ...]:
    return tuple(
        None if old is None or new is None else max(0, new - old) * 1000 / over_ms
        for old, new in zip(before, now, strict=True)
    )


class Topics:
    """Of one node's console."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rates: dict[int, TopicRates] = {}
        self._measured: Remembered[dict[str, Measured]] = Remembered()

    async def listed(self, page: Page, may_see: Callable[[str], bool], *, internal: bool) -> Document:
        """The document of `/api/topics`."""
        structure = await self._cluster.structure()
        measured = await self.measured()
        seen = [
            topic
            for name, topic in structure.topics.items()
            if page.wants(name) and (internal or name not in INTERNAL) and may_see(name)
        ]
        await asyncio.sleep(0)
        ordered = in_order(seen, _topic_key(page.sort, measured), descends=page.descends)
        await asyncio.sleep(0)
        rows: list[Document] = []
        for count, topic in enumerate(page.slice(ordered), 1):
            rows.append(self._row(topic, measured.get(topic.topic.name, UNKNOWN)))
            if count % TOPICS_PER_STEP == 0:
                await asyncio.sleep(0)
        return {**self._cluster.measured(), **page.document(len(seen)), "topics": rows}

    async def measured(self) -> dict[str, Measured]:
        """By topic; shared by all who ask within two seconds."""
        return await self._measured.get("topics", self._measure)

    async def _measure(self) -> dict[str, Measured]:
        views = await self._cluster.live_views("topics")
        self._rates = {broker: self._rates.get(broker, TopicRates()) for broker in views}
        sums: dict[str, list[Any]] = {}
        count = 0
        for broker_id, view in views.items():
            if view is None:
                continue
            rates = self._rates[broker_id].take(view)
            for name, led_bytes, _, records, *_ in view.get("rows", ()):
                row = sums.setdefault(name, [0, 0, None, None, None])
                row[0] += led_bytes
                row[1] += records
                for at, rate in enumerate(rates.get(name, ()), 2):
                    if rate is not None:
                        row[at] = rate + (row[at] or 0.0)
                count += 1
                if count % ROWS_PER_STEP == 0:
                    await asyncio.sleep(0)
        return {name: Measured(*row) for name, row in sums.items()}

    def _row(self, seen: TopicSeen, measured: Measured) -> Document:
        """TOPIC of docs/console-api.md."""
        topic = seen.topic
        config = self._config(topic.name)
        return {
            "name": topic.name,
            "topic_id": uuid_text(topic.topic_id),
            "is_internal": topic.name in INTERNAL,
            "partitions": len(topic.partitions),
            "replication_factor": seen.replication_factor,
            **dict(state_counts(seen)),
            **measured._asdict(),
            "cleanup_policy": config.value_of("cleanup.policy"),
            "retention_ms": int(config.value_of("retention.ms")),
            "retention_bytes": int(config.value_of("retention.bytes")),
            "min_insync_replicas": seen.min_isr,
        }

    def _config(self, name: str) -> LogConfig:
        image, config = self._cluster.image, self._cluster.node.config
        defaults = dynamic_log_defaults(config.log_defaults, image, config.node_id)
        return defaults.with_overrides(image.config(TOPIC_RESOURCE, name))

    # -- one topic

    async def described(self, name: str, page: Page, *, with_configs: bool) -> Document | None:
        """The document of `/api/topics/{name}`; None if there is no such topic."""
        seen = (await self._cluster.structure()).topics.get(name)
        if seen is None:
            return None
        numbers = [
            number for number in range(len(seen.topic.partitions)) if not page.q or page.q == str(number)
        ]
        states = seen.topic.partitions
        if page.sort in MEASURED_SORTS:
            # All of them, the first so many, have to be known before they can be put in order.
            asked = numbers[:PARTITIONS_MAX]
            rows = await self._partitions(seen, asked)
            ordered = in_order(rows, lambda row: row[page.sort], descends=page.descends)
            shown = list(page.slice(ordered))
        else:
            by_leader = page.sort == "leader"
            key: Callable[[int], int] = (lambda number: states[number].leader) if by_leader else (lambda n: n)
            shown = await self._partitions(seen, page.slice(in_order(numbers, key, descends=page.descends)))
        measured = (await self.measured()).get(name, UNKNOWN)
        services = None if self._cluster.node.broker is None else self._cluster.node.broker.services
        configs = (
            config_rows(topic_entries(services, name)) if with_configs and services is not None else None
        )
        return {
            **self._row(seen, measured),
            **self._cluster.measured(),
            "configs": configs,
            "leaders": [
                {"broker": broker_id, "leads": share.leads, "preferred": share.preferred}
                for broker_id, share in sorted(seen.shares.items())
            ],
            **page.document(len(numbers)),
            "partition_rows": shown,
        }

    async def _partitions(self, seen: TopicSeen, numbers: Sequence[int]) -> list[Document]:
        """PARTITION of docs/console-api.md, for each of these."""
        states = seen.topic.partitions
        brokers = {broker_id for number in numbers for broker_id in states[number].replicas}
        live = (
            brokers.intersection(self._cluster.live_brokers()) if self._cluster.asking.why_not is None else ()
        )
        args = {"topic": seen.topic.name, "ranges": ranges(numbers)}
        views = await self._cluster.asking.views(sorted(live), "partitions", args)
        told: dict[int, dict[int, Sequence[Any]]] = {
            broker_id: {row[0]: row for row in view.get("rows", ())}
            for broker_id, view in views.items()
            if view is not None
        }
        rows: list[Document] = []
        for count, number in enumerate(numbers, 1):
            rows.append(_partition_row(seen, number, told))
            if count % 250 == 0:
                await asyncio.sleep(0)
        return rows

    async def close(self) -> None:
        await self._measured.close()


def _topic_key(sort: str, measured: Mapping[str, Measured]) -> Callable[[TopicSeen], Any]:
    if sort == "name":
        return lambda seen: seen.topic.name
    if sort == "partitions":
        return lambda seen: len(seen.topic.partitions)
    if sort == "replication_factor":
        return lambda seen: seen.replication_factor
    if sort in STATES:
        return lambda seen: seen.states.get(sort, 0)
    return lambda seen: getattr(measured.get(seen.topic.name, UNKNOWN), sort)


_START, _END, _HIGH_WATERMARK, _SIZE, _DIRECTORY, _FOLLOWERS = range(1, 7)
"""Where things stand in a row of the view of partitions."""


def _partition_row(seen: TopicSeen, number: int, told: Mapping[int, Mapping[int, Sequence[Any]]]) -> Document:
    state = seen.topic.partitions[number]
    of_brokers = {broker_id: rows[number] for broker_id, rows in told.items() if number in rows}
    leader = of_brokers.get(state.leader)
    if leader is not None and leader[_FOLLOWERS] is None:
        leader = None  # it does not lead any more, or not yet
    replicas = [_replica(state, broker_id, leader, of_brokers.get(broker_id)) for broker_id in state.replicas]
    lags = [one["lag"] for one in replicas if one["lag"] is not None]
    return {
        "partition": number,
        "leader": state.leader,
        "preferred_leader": state.replicas[0],
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "elr": list(state.elr),
        "last_known_elr": list(state.last_known_elr),
        "adding_replicas": list(state.adding_replicas),
        "removing_replicas": list(state.removing_replicas),
        "offline_replicas": list(state.offline_replicas),
        "leader_recovery_state": "recovered" if state.leader_recovery_state == RECOVERED else "recovering",
        "min_isr": seen.min_isr,
        "states": partition_states(state, seen.min_isr),
        "log_start_offset": None if leader is None else leader[_START],
        "log_end_offset": None if leader is None else leader[_END],
        "high_watermark": None if leader is None else leader[_HIGH_WATERMARK],
        "size_bytes": None if leader is None else leader[_SIZE],
        "lag": max(lags, default=None),
        "replica_states": replicas,
    }


def _replica(
    state: PartitionImage, broker_id: int, leader: Sequence[Any] | None, own: Sequence[Any] | None
) -> Document:
    """The leader's word counts; of a replica that it has not heard of, its own."""
    end = None if own is None else own[_END]
    if leader is not None and broker_id != state.leader:
        heard = leader[_FOLLOWERS].get(str(broker_id), -1)
        end = heard if heard >= 0 else end
    lag = None if leader is None or end is None else max(0, leader[_END] - end)
    return {
        "broker": broker_id,
        "is_leader": broker_id == state.leader,
        "is_in_isr": broker_id in state.isr,
        "is_offline": broker_id in state.offline_replicas,
        "log_end_offset": end,
        "lag": lag,
        "size_bytes": None if own is None else own[_SIZE],
        "log_dir": None if own is None else own[_DIRECTORY],
    }
