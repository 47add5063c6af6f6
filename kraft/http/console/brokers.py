"""`/api/brokers` and `/api/brokers/{id}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft.broker.views.times import times_document
from kraft.http.console.cluster import Cluster, Document
from kraft.http.console.structure import BrokerShare
from kraft.network.request_times import PhaseTimes
from quorum.metadata.image import BrokerImage

Views = Mapping[int, Document | None]


class Brokers:
    """Of one node's console. `loop_lag`: of this node's event loop."""

    def __init__(self, cluster: Cluster, loop_lag: PhaseTimes) -> None:
        self._cluster = cluster
        self._loop_lag = loop_lag

    async def listed(self) -> Document:
        """The document of `/api/brokers`."""
        views = await self._cluster.live_views("summary", {"history": True})
        return {**self._cluster.measured(), "brokers": await self.rows(views)}

    async def rows(self, views: Views) -> list[Document]:
        """BROKER of docs/console-api.md for each; `views`: their summaries, of those that were asked."""
        shares = (await self._cluster.structure()).shares
        brokers = self._cluster.image.brokers
        return [
            self._row(brokers[broker_id], shares.get(broker_id, BrokerShare()), views)
            for broker_id in sorted(brokers)
        ]

    def _row(self, broker: BrokerImage, share: BrokerShare, views: Views) -> Document:
        broker_id = broker.broker_id
        view = views.get(broker_id) or {}
        disks = [one for one in view.get("log_dirs", ()) if one["total_bytes"] is not None]
        return {
            "id": broker_id,
            "state": _state(broker, is_silent=broker_id in views and views[broker_id] is None),
            "rack": broker.rack,
            "listeners": [f"{one.name}://{one.host}:{one.port}" for one in broker.listeners],
            "is_controller": broker_id == self._cluster.controller_id,
            "epoch": broker.epoch,
            "leads": share.leads,
            "replicas": share.replicas,
            "out_of_sync": share.out_of_sync,
            "preferred": share.preferred,
            "disk_total_bytes": sum(one["total_bytes"] for one in disks) if disks else None,
            "disk_usable_bytes": sum(one["usable_bytes"] for one in disks) if disks else None,
            "size_bytes": view.get("size_bytes"),
            "connections": view.get("connections"),
            "rates": view.get("rates"),
            "started_at_ms": view.get("started_at_ms"),
        }

    async def described(self, broker_id: int, *, with_configs: bool) -> Document | None:
        """The document of `/api/brokers/{id}`; None if no such broker is registered."""
        broker = self._cluster.image.brokers.get(broker_id)
        if broker is None:
            return None
        asked = self._cluster.asking.why_not is None and not broker.fenced
        told = await self._cluster.asking.view(broker_id, "broker") if asked else None
        views: Views = {broker_id: told} if asked else {}
        row = next(one for one in await self.rows(views) if one["id"] == broker_id)
        view: Mapping[str, Any] = told or {}
        is_here = broker_id == self._cluster.node.config.node_id
        days = view.get("days_left", {})
        return {
            **row,
            **self._cluster.measured(),
            "log_dirs": [{**one, "days_left": days.get(one["path"])} for one in view["log_dirs"]]
            if view
            else None,
            "configs": view.get("configs") if with_configs else None,
            "history": view.get("history"),
            "requests": view.get("requests"),
            "clients_total": view.get("clients_total"),
            "clients": view.get("clients"),
            "metadata_offset": view.get("metadata_offset"),
            "loop_lag_ms": times_document(self._loop_lag) if is_here else None,
        }


def _state(broker: BrokerImage, *, is_silent: bool) -> str:
    if broker.fenced:
        return "fenced"
    if is_silent:
        return "silent"
    return "shutting_down" if broker.in_controlled_shutdown else "running"
