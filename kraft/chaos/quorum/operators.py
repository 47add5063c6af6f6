"""The people and brokers of a simulated quorum: they register, heartbeat, create and delete topics.

An operator does one thing at a time, asks any voter until it is told for sure, and repeats what it does not
know the outcome of; that is why the same request may find its work done. What it is told goes to the judge.
Every topic has a name of its own, so that "there once or not at all" can be said of each. Owned by `quorum`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from kraft.chaos.node_folders import CLUSTER_ID
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.controller import OnAnswer
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.metadata_judge import CONFIG, MetadataJudge, Wish
from kraft.chaos.world.scheduler import Scheduler
from quorum.metadata.features import supported_ranges
from quorum.metadata.records import Listener
from quorum.rpc.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    HeartbeatRequest,
    NewTopic,
    RegisterBrokerRequest,
    TopicToDelete,
)

BROKERS = 3
TIMEOUT_S = 1.5
HEARTBEAT_S = 0.5
MISSING_BROKERS = frozenset({"INVALID_REPLICATION_FACTOR"})
"""Said while not enough brokers are unfenced; nothing was done."""
RETRIABLE = frozenset({"NOT_CONTROLLER", "THROTTLING_QUOTA_EXCEEDED", "REQUEST_TIMED_OUT"})


class Voters(Protocol):
    """How a request reaches a voter."""

    def ask(self, node_id: int, request: Any, answer: OnAnswer) -> None:
        """Carries a request there and the answer back; either may be lost."""


class _Caller:
    """Somebody who asks one thing after the other, of one voter after the other."""

    def __init__(self, scheduler: Scheduler, rng: Random, ids: list[int], voters: Voters) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self._ids = ids
        self._voters = voters
        self._target = rng.choice(ids)
        self._call = 0

    def ask(self, request: Any, answered: OnAnswer) -> None:
        """`answered` is called exactly once: with the answer, or with REQUEST_TIMED_OUT."""
        self._call += 1
        call = self._call

        def end(response: Any, error: str | None) -> None:
            if call == self._call:
                self._call += 1
                if error in RETRIABLE:
                    self._target = self.rng.choice(self._ids)
                answered(response, error)

        self._voters.ask(self._target, request, end)
        self.scheduler.call_kernel(TIMEOUT_S, end, None, "REQUEST_TIMED_OUT")

    def later(self, low_s: float, high_s: float, call: Callable[..., None], *arguments: Any) -> None:
        self.scheduler.call_kernel(self.rng.uniform(low_s, high_s), call, *arguments)


class Broker(_Caller):
    """Keeps one broker registered and unfenced; falls silent now and then until it is fenced."""

    def __init__(self, broker_id: int, *caller: Any) -> None:
        super().__init__(*caller)
        self.calm = False
        """It is not silent any more."""
        self._broker_id = broker_id
        self._incarnation = self.rng.randbytes(16)
        self._epoch = -1

    def register(self) -> None:
        listener = Listener("PLAINTEXT", f"broker{self._broker_id}", 9092, "PLAINTEXT")
        request = RegisterBrokerRequest(
            self._broker_id, self._incarnation, CLUSTER_ID, (listener,), features=supported_ranges()
        )
        self.ask(request, self._registered)

    def _registered(self, response: Any, error: str | None) -> None:
        if error is None:
            self._epoch = response.broker_epoch
            self.later(0.0, 0.01, self._heartbeat)
        else:
            self.later(0.02, 0.1, self.register)

    def _heartbeat(self) -> None:
        offset = self._epoch + 10**9  # it lives beside the quorum, and is told of everything at once
        self.ask(HeartbeatRequest(self._broker_id, self._epoch, offset), self._beaten)

    def _beaten(self, response: Any, error: str | None) -> None:
        if error is not None and error not in RETRIABLE:
            self._incarnation = self.rng.randbytes(16)
            self.later(0.02, 0.1, self.register)
        elif error is not None or response.is_fenced:
            self.later(0.02, 0.1, self._heartbeat)
        elif not self.calm and self.rng.random() < 0.06:
            self.later(2.0, 3.0, self._heartbeat)
        else:
            self.later(HEARTBEAT_S, HEARTBEAT_S, self._heartbeat)


class Operator(_Caller):
    """Creates and deletes topics, one request after the other."""

    def __init__(
        self, number: int, judge: MetadataJudge, happened: Callable[[str], None], *caller: Any
    ) -> None:
        super().__init__(*caller)
        self._number = number
        self._judge = judge
        self._happened = happened
        self._topics = 0
        self._mine: list[Wish] = []
        self.stopping = False
        self.idle = False
        """It was asked to stop, and knows the outcome of everything."""

    def act(self) -> None:
        """Begins the next operation."""
        if self.stopping:
            self.idle = True
        elif len(self._mine) > 2 or (self._mine and self.rng.random() < 0.4):
            wish = self._mine.pop(self.rng.randrange(len(self._mine)))
            wish.removal_asked = True
            self.delete(wish)
        else:
            self.create([self.wish() for _ in range(self.rng.choice((1, 1, 2, 3)))])

    def wish(self) -> Wish:
        """A topic that nobody has asked for."""
        self._topics += 1
        name = f"t{self._number}-{self._topics}"
        wish = Wish(name, self.rng.choice((1, 2, 5)), self.rng.choice((1, 3)), str(self._topics * 1000))
        self._judge.wished(wish)
        return wish

    def create(self, wishes: list[Wish]) -> None:
        topics = tuple(
            NewTopic(wish.name, wish.partitions, wish.replication_factor, configs=((CONFIG, wish.config),))
            for wish in wishes
        )
        self.ask(CreateTopicsRequest(topics), lambda response, error: self._created(wishes, response, error))

    def _created(self, wishes: list[Wish], response: Any, error: str | None) -> None:
        if error is not None:
            self._check_retriable(error)
            self.later(0.01, 0.1, self.create, wishes)
            return
        again = []
        for wish, result in zip(wishes, response.topics, strict=True):
            if result.error in MISSING_BROKERS:
                again.append(wish)
                continue
            if result.error == "TOPIC_ALREADY_EXISTS":
                self._happened(counters.ALREADY_DONE)
                self._judge.told_created(wish, None)
            elif result.error == "NONE":
                self._judge.told_created(wish, result.topic_id)
            else:
                raise Violation("acknowledged-topic", f"topic {wish.name} was refused with {result.error}")
            self._mine.append(wish)
        if again and not self.stopping:
            self.later(0.05, 0.2, self.create, again)
        else:
            self.later(0.0, 0.05, self.act)

    def delete(self, wish: Wish) -> None:
        request = DeleteTopicsRequest((TopicToDelete(name=wish.name),))
        self.ask(request, lambda response, error: self._deleted(wish, response, error))

    def _deleted(self, wish: Wish, response: Any, error: str | None) -> None:
        refused = None if error is not None else response.topics[0].error
        if error is not None:
            self._check_retriable(error)
        elif refused == "NONE":
            self._judge.told_removed(wish)
        elif refused != "UNKNOWN_TOPIC_OR_PARTITION":
            raise Violation("acknowledged-topic", f"deleting {wish.name} was refused with {refused}")
        elif self._judge.is_gone(wish):
            self._happened(counters.ALREADY_DONE)
            self._judge.told_removed(wish)
        if wish.removed:
            self.later(0.0, 0.05, self.act)
        else:  # a deposed controller may not have known the topic yet
            self.later(0.01, 0.1, self.delete, wish)

    @staticmethod
    def _check_retriable(error: str) -> None:
        if error not in RETRIABLE:
            raise Violation("acknowledged-topic", f"a whole request was refused with {error}")
