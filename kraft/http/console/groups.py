"""`/api/groups` and `/api/groups/{id}`: told by coordinators, which measure more often while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kraft.http.console.cluster import Cluster, Document
from kraft.http.console.paging import Page, in_order

GROUP_SORTS: Final = ("group_id", "type", "state", "members", "lag", "lag_s")
STREAMED_MAX: Final = 500
STREAMED: Final = ("group_id", "state", "members", "lag", "lag_s")
MaySee = Callable[[str], bool]


class NoAnswerError(Exception):
    """Who knows does not answer; the text says who."""


class Groups:
    """Of one node's console."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def listed(self, page: Page, may_see: MaySee) -> Document:
        """The document of `/api/groups`."""
        rows, unanswered = await self._rows()
        wanted = [row for row in rows if page.wants(row["group_id"]) and may_see(row["group_id"])]
        await asyncio.sleep(0)
        ordered = in_order(
            in_order(wanted, lambda row: row["group_id"], descends=False),
            lambda row: row[page.sort],
            descends=page.descends,
        )
        return {
            **self._cluster.measured(),
            **page.document(len(wanted)),
            "unanswered": unanswered,
            "groups": list(page.slice(ordered)),
        }

    async def streamed(self, may_see: MaySee) -> Document:
        """Of the event `groups`."""
        rows, unanswered = await self._rows()
        seen = [row for row in rows if may_see(row["group_id"])]
        worst = in_order(seen, lambda row: row["lag"], descends=True)[:STREAMED_MAX]
        return {"groups": [{key: row[key] for key in STREAMED} for row in worst], "unanswered": unanswered}

    async def _rows(self) -> tuple[list[dict[str, Any]], list[int]]:
        views = await self._cluster.live_views("groups")
        unanswered = [broker_id for broker_id, view in views.items() if view is None]
        return [row for view in views.values() if view for row in view.get("rows", ())], unanswered

    async def described(self, group_id: str, may_see_topic: MaySee) -> Document | None:
        """The document of `/api/groups/{group_id}`; None if there is no such group. As with Kafka's APIs, what is
        about topics that may not be seen is left out. Raises NoAnswerError."""
        why_not = self._cluster.asking.why_not
        if why_not is not None:
            raise NoAnswerError(why_not)
        coordinator = self._coordinator(group_id)
        if coordinator is None:
            return None
        document = await self._cluster.asking.view(coordinator, "group", {"group_id": group_id})
        if document is None:
            raise NoAnswerError(f"broker {coordinator}, which coordinates the group, does not answer")
        if not document:
            return None
        document = dict(document)
        document["partition_rows"] = [
            row for row in document["partition_rows"] if may_see_topic(row["topic"])
        ]
        document["member_rows"] = [_visible(member, may_see_topic) for member in document["member_rows"]]
        return document

    def _coordinator(self, group_id: str) -> int | None:
        """The broker that leads the group's partition of __consumer_offsets; None while there is no such topic.
        Raises NoAnswerError."""
        broker = self._cluster.node.broker
        number = None if broker is None else broker.groups.partition_of(group_id)
        topic = self._cluster.image.topic("__consumer_offsets")
        if number is None or topic is None or number >= len(topic.partitions):
            return None
        leader = topic.partitions[number].leader
        if leader < 0:
            raise NoAnswerError(f"__consumer_offsets-{number}, which keeps the group, has no leader")
        return leader


def _visible(member: Document, may_see_topic: MaySee) -> Document:
    seen = dict(member)
    for key in ("assignment", "target_assignment"):
        if seen[key] is not None:
            seen[key] = [one for one in seen[key] if may_see_topic(one["topic"])]
    if seen["subscribed_topics"] is not None:
        seen["subscribed_topics"] = [name for name in seen["subscribed_topics"] if may_see_topic(name)]
    return seen
