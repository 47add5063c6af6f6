"""What the console's pages share: the image of the node, its structure, the brokers that may be asked, the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kraft.broker.handlers.forwarding import Refusal, forward
from kraft.http.console.asking import Asking, Remembered
from kraft.http.console.structure import Structure, seen
from kraft.http.snapshots import NodeParts
from kraft.protocol.texts import uuid_text
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.recent_changes import RecentChanges
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import DescribeQuorumRequest, DescribeQuorumResponse, QuorumReplica
from quorum.turns import taking_turns

QUORUM_TIMEOUT_S: Final = 1.5
UNKNOWN: Final = -1
Document = dict[str, Any]


class ConsoleNode(NodeParts, Protocol):
    """What the console needs of a node beside its parts."""

    cluster_id: str


class Cluster:
    """As one node knows it."""

    def __init__(self, node: ConsoleNode, now_ms: Callable[[], int]) -> None:
        self.node = node
        self.now_ms = now_ms
        self.asking = Asking(node)
        self._structure = Structure()
        self._looking = asyncio.Lock()
        self._quorum: Remembered[Document | None] = Remembered()

    @property
    def image(self) -> MetadataImage:
        broker, controller = self.node.broker, self.node.controller
        if broker is not None:
            return broker.metadata.image
        return EMPTY if controller is None else controller.image

    @property
    def recent(self) -> RecentChanges | None:
        """The newest changes of the metadata; None while the node has neither role."""
        broker, controller = self.node.broker, self.node.controller
        if broker is not None:
            return broker.recent_changes
        return None if controller is None else controller.recent_changes

    @property
    def controller_id(self) -> int | None:
        """The active controller."""
        broker, controller = self.node.broker, self.node.controller
        if controller is not None and controller.leader_id is not None:
            return controller.leader_id
        return None if broker is None else broker.controller.leader_id

    def measured(self) -> Document:
        why_not = self.asking.why_not
        return {"measured": why_not is None, "why_not": why_not}

    async def structure(self) -> Structure:
        """Of the newest image."""
        async with self._looking:
            image = self.image
            if image is not self._structure.image:
                configs = LogTopicConfigs(self.node.config.log_defaults)
                of_all = image.config(BROKER_RESOURCE, "")

                def min_isr_of(name: str) -> int:
                    return configs.min_insync_replicas(image.config(TOPIC_RESOURCE, name), of_all)

                self._structure = await taking_turns(seen(self._structure, image, min_isr_of))
            return self._structure

    def live_brokers(self) -> list[int]:
        """Those that are asked for what only they know."""
        brokers = self.image.brokers
        return sorted(broker_id for broker_id in brokers if not brokers[broker_id].fenced)

    async def live_views(
        self, view: str, args: Mapping[str, Any] | None = None
    ) -> dict[int, Document | None]:
        """The same view of each of them; nothing where nothing can be measured."""
        if self.asking.why_not is not None:
            return {}
        return await self.asking.views(self.live_brokers(), view, args)

    # -- the quorum

    async def quorum(self) -> Document | None:
        """QUORUM of docs/console-api.md; None: no controller tells."""
        return await self._quorum.get("quorum", self._describe_quorum)

    async def _describe_quorum(self) -> Document | None:
        broker, controller = self.node.broker, self.node.controller
        if broker is not None and broker.services is not None:
            told = await forward(broker.services, DescribeQuorumRequest(), QUORUM_TIMEOUT_S)
            return None if isinstance(told, Refusal) else self._quorum_document(told.response)
        if controller is None:
            return None
        try:
            return self._quorum_document(await controller.describe_quorum())
        except RpcError:
            if controller.leader_id is None:
                return None
        voters = [
            self._voter(QuorumReplica(voter, bytes(16), -1, -1, -1), 0) for voter in self.node.config.voters
        ]
        for voter in voters:
            voter["is_leader"] = voter["id"] == controller.leader_id
        return {
            "leader_id": controller.leader_id,
            "leader_epoch": controller.epoch,
            "high_watermark": controller.image.offset + 1,
            "voters": voters,
            "observers": [],
        }

    def _quorum_document(self, told: DescribeQuorumResponse) -> Document:
        ends = [one.log_end_offset for one in told.voters if one.replica_id == told.leader_id]
        leader_end = ends[0] if ends else told.high_watermark
        voters = [self._voter(one, leader_end) for one in told.voters]
        for voter in voters:
            voter["is_leader"] = voter["id"] == told.leader_id
        return {
            "leader_id": told.leader_id,
            "leader_epoch": told.leader_epoch,
            "high_watermark": told.high_watermark,
            "voters": voters,
            "observers": [self._voter(one, leader_end) for one in told.observers],
        }

    def _voter(self, one: QuorumReplica, leader_end: int) -> Document:
        end = _known(one.log_end_offset)
        return {
            "id": one.replica_id,
            "directory_id": uuid_text(one.directory_id),
            "is_leader": False,
            "log_end_offset": end,
            "lag": None if end is None else max(0, leader_end - end),
            "last_fetch_at_ms": _known(one.last_fetch_ms),
            "last_caught_up_at_ms": _known(one.last_caught_up_ms),
            "address": self.node.config.voters.get(one.replica_id),
        }

    async def close(self) -> None:
        await self._quorum.close()
        await self.asking.close()


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value
