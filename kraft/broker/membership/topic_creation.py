"""Topics that are made because somebody needs them: clients that name an unknown one, and what keeps its own records.

`ensure` has the active controller create what this broker's metadata lack, and returns when they have it, so that the
first answer is already useful. Guarantees: one call is in flight for a topic, however many ask for it; who asks
meanwhile shares its outcome; a call that its caller gave up is made anew by those who still wait. (Kafka's
AutoTopicCreationManager.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.membership.metadata_loader import MetadataLoader
from kraft.protocol.errors import ErrorCode
from quorum.controller.topic_names import topic_name_problem
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import NO_ERROR, CreateTopicsRequest, Mutator, NewTopic

TIMEOUT_S = 5.0
TOPICS_MAX = 10_000
"""Topics that are being made at once, and that one request may ask for; who asks for more asks again."""


_NOT_REFUSED = (NO_ERROR, "TOPIC_ALREADY_EXISTS", "THROTTLING_QUOTA_EXCEEDED")


class _Call:
    """One call of the controller."""

    __slots__ = ("is_given_up", "names", "over", "refused")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.over = asyncio.Event()
        self.is_given_up = True
        """Unless it has come to an outcome."""
        self.refused: Mapping[str, ErrorCode] = {}


class TopicCreation:
    """The topics that one broker is having made."""

    def __init__(self, controller: ControllerClient, loader: MetadataLoader) -> None:
        self._controller = controller
        self._loader = loader
        self._calls: dict[str, _Call] = {}

    async def ensure(
        self, topics: Iterable[NewTopic], timeout_s: float = TIMEOUT_S, mutator: Mutator | None = None
    ) -> dict[str, ErrorCode]:
        """Has those made that do not exist, with the partitions, replicas and configs that they name, or with the
        cluster's defaults. A topic that exists is left as it is. `mutator` is the client for whom this is done; a quota
        that it has exceeded lets it ask again later (KIP-599).

        Returns why any were refused. What is neither refused nor there when this returns may be there later (no
        controller answers, time is over, too many are asked for): ask again.
        """
        known = self._loader.image.topic_ids
        wanted = {topic.name: topic for topic in topics if topic.name not in known}
        illegal = [name for name in wanted if topic_name_problem(name)]
        refused = dict.fromkeys(illegal, ErrorCode.INVALID_TOPIC_EXCEPTION)
        left = [name for name in wanted if name not in refused][:TOPICS_MAX]
        try:
            async with asyncio.timeout(timeout_s):
                while left:
                    mine = [name for name in left if name not in self._calls]
                    if len(self._calls) + len(mine) > TOPICS_MAX:
                        break
                    call = _Call(mine) if mine else self._calls[left[0]]
                    if mine:
                        await self._make(call, [wanted[name] for name in mine], timeout_s, mutator)
                    else:
                        await call.over.wait()
                    if not call.is_given_up:
                        refused.update((name, call.refused[name]) for name in left if name in call.refused)
                        left = [name for name in left if name not in call.names]
        except TimeoutError:
            pass
        return refused

    async def _make(
        self, call: _Call, topics: Sequence[NewTopic], timeout_s: float, mutator: Mutator | None
    ) -> None:
        self._calls.update(dict.fromkeys(call.names, call))
        try:
            call.refused = await self._created(topics, timeout_s, mutator)
            call.is_given_up = False
        finally:
            for name in call.names:
                del self._calls[name]
            call.over.set()

    async def _created(
        self, topics: Sequence[NewTopic], timeout_s: float, mutator: Mutator | None
    ) -> Mapping[str, ErrorCode]:
        try:
            answer, _ = await self._controller.call_persistently(
                CreateTopicsRequest(tuple(topics), mutator=mutator), timeout_s=timeout_s
            )
        except RpcError:
            return {}
        results = answer.response.topics
        if any(result.error == NO_ERROR for result in results):
            await self._loader.wait_until(lambda image: image.offset >= answer.offset)
        return {
            result.name: ErrorCode[result.error] for result in results if result.error not in _NOT_REFUSED
        }
