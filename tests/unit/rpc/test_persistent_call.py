"""A call while controllers stand still, die and lead: who is asked, and what is known of earlier attempts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection

import pytest

from quorum.rpc import persistent_call
from quorum.rpc.envelope import Body, RpcError, RpcUnavailable
from quorum.rpc.persistent_call import Answered, call_persistently

FROZEN = "frozen"
REFUSED = RpcUnavailable("connection refused", in_doubt=False)
BROKEN = RpcUnavailable("connection reset")
FOLLOWER = RpcError("NOT_CONTROLLER", "not the active controller")
DEPOSED = RpcError("NOT_CONTROLLER", "no longer the active one", in_doubt=True)
EXISTS = RpcError("TOPIC_ALREADY_EXISTS", "it exists")


class Quorum:
    """Three voters; each says the same at every question, or what its list holds, the last one for ever."""

    def __init__(self, **answers: object) -> None:
        self._answers = {int(name[1:]): given for name, given in answers.items()}
        self.asked: list[int] = []
        self.still_frozen: list[int] = []
        self.all_frozen = asyncio.Event()

    async def ask(self, voter: int, timeout_s: float) -> Body:
        self.asked.append(voter)
        answer = self._answers[voter]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if answer == FROZEN:
            self.still_frozen.append(voter)
            if len(self.still_frozen) == 3:
                self.all_frozen.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.still_frozen.remove(voter)
        if isinstance(answer, RpcError):
            raise RpcError(answer.code, answer.message, in_doubt=answer.in_doubt)
        return {"from": voter}

    def next_voter(self, without: Collection[int]) -> int | None:
        return next((voter for voter in (1, 2, 3) if voter not in without), None)

    async def call(self, timeout_s: float = 30.0) -> Answered:
        return await call_persistently(
            self.ask, self.next_voter, what="m", timeout_s=timeout_s, rng=random.Random(1)
        )


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent_call, "PATIENCE_S", 0.001)
    monkeypatch.setattr(persistent_call, "PAUSE_MAX_S", 0.001)


async def test_the_leader_answers_and_nothing_is_in_doubt() -> None:
    quorum = Quorum(v1="leads", v2=FOLLOWER, v3=FOLLOWER)
    assert await quorum.call() == Answered({"from": 1}, in_doubt=False)
    assert quorum.asked == [1]


async def test_a_frozen_leader_holds_nobody_up_and_leaves_a_doubt() -> None:
    quorum = Quorum(v1=FROZEN, v2=[FOLLOWER, FOLLOWER, "leads"], v3=FOLLOWER)
    assert await quorum.call() == Answered({"from": 2}, in_doubt=True)
    assert quorum.asked.count(1) == 1, "who has not answered is not given the same work again"
    assert quorum.still_frozen == []


async def test_a_slow_leader_is_waited_for_while_the_others_point_at_it() -> None:
    ready = asyncio.Event()
    others = 0

    async def ask(voter: int, timeout_s: float) -> Body:
        nonlocal others
        if voter == 1:
            await ready.wait()
            return {"from": 1}
        others += 1
        if others == 5:
            ready.set()
        raise RpcError("NOT_CONTROLLER", "ask 1", leader_id=1)

    answered = await call_persistently(ask, Quorum().next_voter, what="m", timeout_s=30, rng=random.Random(1))
    assert answered == Answered({"from": 1}, in_doubt=False)


@pytest.mark.parametrize(
    ("first", "in_doubt"),
    [(REFUSED, False), (FOLLOWER, False), (BROKEN, True), (DEPOSED, True)],
    ids=["refused", "follower", "broken", "deposed"],
)
async def test_doubt_comes_from_attempts_that_may_have_been_carried_out(
    first: RpcError, in_doubt: bool
) -> None:
    assert (await Quorum(v1=first, v2="leads", v3=FOLLOWER).call()).in_doubt is in_doubt
    with pytest.raises(RpcError, match="it exists") as caught:
        await Quorum(v1=first, v2=EXISTS, v3=FOLLOWER).call()
    assert caught.value.in_doubt is in_doubt


@pytest.mark.parametrize(
    "answers",
    [
        {"v1": FROZEN, "v2": REFUSED, "v3": FOLLOWER},
        {"v1": REFUSED, "v2": [BROKEN, REFUSED], "v3": FOLLOWER},
    ],
)
async def test_nobody_answers_in_time(answers: dict[str, object]) -> None:
    quorum = Quorum(**answers)
    with pytest.raises(RpcUnavailable, match=r"no active controller answered m in 0\.05 s") as caught:
        await quorum.call(timeout_s=0.05)
    assert caught.value.in_doubt
    assert quorum.still_frozen == []


async def test_whoever_gives_up_leaves_nothing_behind() -> None:
    quorum = Quorum(v1=FROZEN, v2=FROZEN, v3=FROZEN)
    call = asyncio.ensure_future(quorum.call())
    await quorum.all_frozen.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert quorum.still_frozen == []
    assert quorum.asked == [1, 2, 3]
