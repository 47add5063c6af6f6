"""The producer at an even pace: what a broker that stalls hides from nobody, and what belongs to which time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench import pacing
from bench.errors import BenchError
from bench.pacing import paced, split
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

ANYWHERE = ("127.0.0.1", 1)


class ScriptedLink:
    """A broker that answers so many requests, and then stalls or says something else."""

    def __init__(self, answered: int, then: ErrorCode | None) -> None:
        self._left = answered
        self._then = then
        self.stalls = asyncio.Event()
        self.is_closed = False

    def send(self, message: Any, version: int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._left -= 1
        code = ErrorCode.NONE if self._left >= 0 else self._then
        if code is None:
            self.stalls.set()
        else:
            one = PartitionProduceResponse(index=0, error_code=code)
            answer.set_result(ProduceResponse([TopicProduceResponse(name="t", partition_responses=[one])]))
        return answer

    async def close(self) -> None:
        self.is_closed = True


def scripted(monkeypatch: pytest.MonkeyPatch, answered: int, then: ErrorCode | None = None) -> ScriptedLink:
    link = ScriptedLink(answered, then)

    class Links:
        @staticmethod
        async def open(address: Any) -> ScriptedLink:
            return link

    monkeypatch.setattr(pacing, "Link", Links)
    monkeypatch.setattr(pacing, "PACE_S", 0.0)
    return link


async def test_a_record_that_a_stalled_broker_never_answers_is_a_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = scripted(monkeypatch, 5)
    task = await paced(ANYWHERE, "t", 0)
    await link.stalls.wait()
    task.cancel()
    latencies = await task
    assert len(latencies) == 5, "of six records the first is no latency, and the last one waits"
    before, since = split(latencies, latencies[-1][0] + latencies[-1][1] / 2000)
    assert (len(before), since) == (4, [latencies[-1][1]])
    assert link.is_closed


async def test_it_has_had_an_answer_when_the_others_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    link = scripted(monkeypatch, 2)
    task = await paced(ANYWHERE, "t", 0)
    await link.stalls.wait()
    task.cancel()
    assert len(await task) == 2


@pytest.mark.parametrize("answered", [0, 4])
async def test_a_refused_record_is_told(monkeypatch: pytest.MonkeyPatch, answered: int) -> None:
    link = scripted(monkeypatch, answered, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BenchError, match="NOT_LEADER_OR_FOLLOWER"):
        await (await paced(ANYWHERE, "t", 0))
    assert link.is_closed


async def test_no_broker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(address: Any) -> None:
        raise ConnectionRefusedError("nobody")

    monkeypatch.setattr(pacing.Link, "open", refuse)
    with pytest.raises(BenchError, match="found no broker: nobody"):
        await paced(ANYWHERE, "t", 0)


def test_what_was_on_its_way_at_an_instant_counts_from_then() -> None:
    assert split([(1.0, 100.0), (1.2, 900.0), (2.5, 3.0)], 2.0) == ([100.0], [900.0, 3.0])
