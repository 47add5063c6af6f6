"""Tells the controller which replicas of this broker cannot be served, and which can again.

Guarantees: a marked replica is reported until the controller has answered for the broker's present registration.
A change while a report is under way goes into the next one: the last word is true. Replicas are reported one by
one, so that damage to one log takes nothing else offline. A registration clears all marks at the controller, so that
none outlives its incarnation; the broker reports anew, and `is_settled` says when it may ask to be unfenced: nobody
elects it for what it cannot serve. One request is in flight at a time, bounded in size. Owned by the broker server;
the replica manager and its `ReplicaLogs` mark replicas.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import structlog

from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.vital_task import end_task, start_vital_task
from partitions.log.errors import LogCorruptError, LogError
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import PartitionId
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import (
    DAMAGED,
    DIRECTORY,
    MAX_REPLICA_STATES,
    NO_ERROR,
    ReplicaStatesRequest,
)

log = structlog.get_logger(__name__)

CALL_TIMEOUT_S: Final = 2.0
BACKOFF_S: Final = 0.1


class OfflineReplicas:
    """The replicas of one broker that are offline, by (topic id, partition). Methods run on its event loop."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerClient,
        rng: random.Random,
        halt: Halt,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._rng = rng
        self._halt = halt
        self._kinds: dict[PartitionId, str] = {}
        self._due: dict[PartitionId, None] = {}
        self._asked: dict[PartitionId, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to report. The broker is registered."""
        self._task = start_vital_task(self._run(), "replica-states", self._halt)

    async def close(self) -> None:
        await end_task(self._task)

    # -- what is so

    @property
    def kinds(self) -> Mapping[PartitionId, str]:
        """Why each of them is offline: DIRECTORY or DAMAGED; not to be changed by the caller."""
        return self._kinds

    @property
    def is_settled(self) -> bool:
        """Whether the controller has answered for everything that is offline."""
        return not any(key in self._kinds for key in (*self._due, *self._asked))

    def is_told(self, key: PartitionId) -> bool:
        """Whether the controller has answered for a marked replica, by what it is marked as now."""
        return key in self._kinds and key not in self._due and key not in self._asked

    # -- what changes

    def mark(self, key: PartitionId, kind: str) -> None:
        """A replica cannot be served."""
        if self._kinds.get(key) != kind:
            self._kinds[key] = kind
            self._report(key)

    def clear(self, key: PartitionId) -> None:
        """A replica can be served, perhaps again."""
        if self._kinds.pop(key, None) is not None:
            self._report(key)

    def forget(self, key: PartitionId) -> None:
        """A replica is not this broker's any more; the controller knows."""
        self._kinds.pop(key, None)
        self._due.pop(key, None)

    def report_again(self, key: PartitionId) -> None:
        """The metadata does not say of a marked replica that it is offline."""
        if key in self._kinds and key not in self._asked:
            self._report(key)

    def retract(self, key: PartitionId) -> None:
        """The metadata shows a replica offline that can be served: an earlier report came in late."""
        if key not in self._kinds and key not in self._asked:
            self._report(key)

    def on_registered(self) -> None:
        """The registration has cleared what the controller knew."""
        self._due = dict.fromkeys(self._kinds)
        self._wake.set()

    def _report(self, key: PartitionId) -> None:
        self._due[key] = None
        self._wake.set()

    # -- reporting

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                if not await self._send():
                    await asyncio.sleep(BACKOFF_S * self._rng.uniform(0.8, 1.2))

    async def _send(self) -> bool:
        """One request and its answer. Returns whether there was one."""
        epoch = self._broker_epoch()
        self._asked = asked = dict.fromkeys(islice(self._due, MAX_REPLICA_STATES))
        for key in asked:
            del self._due[key]
        request = ReplicaStatesRequest(
            self._broker_id,
            epoch,
            offline=tuple((*key, self._kinds[key]) for key in asked if key in self._kinds),
            online=tuple(key for key in asked if key not in self._kinds),
        )
        try:
            response = await self._controller.call(
                request,
                timeout_s=CALL_TIMEOUT_S,
                attempt_timeout_s=CALL_TIMEOUT_S / 2,  # a paused controller is not waited for
            )
        except RpcError as error:
            log.info("the controller did not take a report of replicas", reason=str(error))
            self._due = {**asked, **self._due}
            return False
        finally:
            self._asked = {}
        if epoch != self._broker_epoch():
            # Registered anew meanwhile: the answer is about an earlier registration.
            self._due = {**{key: None for key in asked if key in self._kinds}, **self._due}
        for result in response.partitions:
            if result.error != NO_ERROR:
                # The partition is gone or moved away; the metadata will tell.
                log.info(
                    "the controller does not know a replica", partition=result.partition, error=result.error
                )
        log.info("replicas reported", offline=len(request.offline), online=len(request.online))
        return True


def kind_of(error: LogError) -> str:
    """What an error says of the records: whether they are wrong, or only out of reach."""
    return DAMAGED if isinstance(error, LogCorruptError) else DIRECTORY


def offline_document(
    directories: Mapping[str, str], replicas: Mapping[TopicPartition, LogError]
) -> dict[str, Any]:
    """Data directories that cannot be used (path → reason) and replicas, as JSON values for people."""
    return {
        "offline_log_dirs": [{"path": path, "reason": reason} for path, reason in directories.items()],
        "offline_replicas": [
            {"topic": key.topic, "partition": key.partition, "reason": str(error)}
            for key, error in sorted(replicas.items())
        ],
    }
