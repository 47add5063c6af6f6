"""Plays the stories under scripts/: broker 1 leads topic "t" over real logs, and readers fetch from it.

The form is that of `tests.support.golden`. Readers are "consumer…", of a rack if one is given, or "follower-N". A
reader keeps the session that it was given last; sessions are numbered in the order in which they were opened.
Offsets to fetch from are written as `partition@offset`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from partitions.replica_selector import RACK_AWARE_SELECTOR
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import BrokerChange, Config, PartitionChange, UnregisterBroker
from tests.support.broker_world import BrokerWorld, batch, broker, topic, topic_id
from tests.support.golden import check_script, scripts_beside

VERSION = 16
TOPIC = "t"
WAIT_MS = 1_000_000
"""Longer than any story: no request waits for its time to be over."""


@dataclass
class Reader:
    """Somebody who fetches, and the session it believes in."""

    session: int = 0
    epoch: int = 0


class Story:
    """Every command gives the lines that it caused."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.world: BrokerWorld | None = None

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        return self.runner.run(self._play(command.replace("-", "_"), arguments, options))

    async def _play(self, command: str, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.said: list[str] = []
        await getattr(self, f"do_{command}")(arguments, options)
        await self._settled()
        return self.said

    async def _settled(self) -> None:
        """Tells of the requests that need not wait any more."""
        await asyncio.sleep(0)
        for who, answer in [(who, answer) for who, answer in self.waiting.items() if answer.done()]:
            del self.waiting[who]
            self._tell(who, answer.result(), "is answered now")

    async def close(self) -> None:
        if self.world is not None:
            for answer in self.waiting.values():
                answer.cancel()
            await self.world.close()

    # -- the leader

    async def do_new(self, arguments: list[str], options: dict[str, str]) -> None:
        """new PARTITIONS [isr=1,2] [slots=N] [racks=a,b,c]: another cluster; brokers 1 to 3 have replicas, 1 leads."""
        await self.close()
        properties = f"max.incremental.fetch.session.cache.slots={options.get('slots', 1000)}\n"
        racks = options["racks"].split(",") if "racks" in options else []
        if racks:
            properties += f"replica.selector.class={RACK_AWARE_SELECTOR}\n"
        self.world = BrokerWorld(properties=properties)
        self.now_ms = 0
        self.world.replicas.monotonic_ms = lambda: self.now_ms  # type: ignore[method-assign]
        self.readers: dict[str, Reader] = {}
        self.sessions: dict[int, int] = {}
        self.waiting: dict[str, asyncio.Future[FetchResponse]] = {}
        isr = tuple(map(int, options.get("isr", "1,2,3").split(",")))
        await self.world.start()
        for number, rack in enumerate(racks, start=1):
            registration, unfenced = broker(number)
            anew = replace(registration, rack=rack)
            await self.world.publish(UnregisterBroker(number, number), anew, unfenced)
        await self.world.publish(*topic(TOPIC, 1, *([(1, 2, 3)] * int(arguments[0])), isr=isr))

    async def do_fence(self, arguments: list[str], options: dict[str, str]) -> None:
        """fence BROKER: it is not heard of any more."""
        number = int(arguments[0])
        await self._world.publish(BrokerChange(number, number, fenced=True))

    async def do_isr(self, arguments: list[str], options: dict[str, str]) -> None:
        """isr BROKER...: of partition 0, from now on."""
        await self._world.publish(PartitionChange(topic_id(1), 0, isr=tuple(map(int, arguments))))

    async def do_configs(self, arguments: list[str], options: dict[str, str]) -> None:
        """configs KEY=VALUE...: rates are set on broker 1, the rest on the topic."""
        for key, value in options.items():
            where = ("broker", "1") if key.endswith(".rate") else ("topic", TOPIC)
            await self._world.publish(Config(*where, key, value))

    async def do_tick(self, arguments: list[str], options: dict[str, str]) -> None:
        self.now_ms += int(arguments[0])

    async def do_append(self, arguments: list[str], options: dict[str, str]) -> None:
        """append PARTITION [bytes=N]: one record, with acks=1."""
        partition = self._world.replicas.partition(TopicPartition(TOPIC, int(arguments[0])))
        value = b"v" * int(options.get("bytes", "10"))
        partition.append_records(batch(value), acks=1, now_ms=self.now_ms)
        self.said.append(f"{TOPIC}-{arguments[0]} ends at {partition.log_end_offset}")

    # -- readers

    async def do_open(self, arguments: list[str], options: dict[str, str]) -> None:
        """open WHO P@OFFSET... [rack=R]: a full request for a new session, in the place of the one it has."""
        who, *wanted = arguments
        reader = self.readers.setdefault(who, Reader())
        reader.epoch = 0
        await self._fetch(who, reader, wanted, options)

    async def do_go_on(self, arguments: list[str], options: dict[str, str]) -> None:
        """go-on WHO [P@OFFSET...] [forget=P,...] [epoch=N] [wait=yes] [rack=R]: the next request of its session.

        `as=OTHER`: somebody else says that the session is its own.
        """
        who, *wanted = arguments
        reader = self.readers[who]
        if "as" in options:
            other = self.readers[options["as"]]
            other.session, other.epoch = reader.session, reader.epoch
            who, reader = options["as"], other
        reader.epoch = int(options.get("epoch", reader.epoch))
        await self._fetch(who, reader, wanted, options)

    @property
    def _world(self) -> BrokerWorld:
        assert self.world is not None, "a story begins with new"
        return self.world

    async def _fetch(self, who: str, reader: Reader, wanted: list[str], options: dict[str, str]) -> None:
        follower = int(who.partition("-")[2]) if who.startswith("follower") else -1
        forgotten = [int(number) for number in options.get("forget", "").split(",") if number]
        partitions = [self._wanted(text, follower, options) for text in wanted]
        body = FetchRequest(
            replica_id=follower,
            replica_epoch=follower,
            max_wait_ms=WAIT_MS if "wait" in options else 0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=reader.session,
            session_epoch=reader.epoch,
            topics=[FetchTopic(TOPIC, topic_id(1), partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(TOPIC, topic_id(1), forgotten)] if forgotten else [],
            rack_id=options.get("rack", ""),
        )
        answer: Any = self._world.handle(body, VERSION)
        if isinstance(answer, FetchResponse):
            self._tell(who, answer)
        else:
            self.waiting[who] = asyncio.ensure_future(answer)
            self.said.append(f"{who}: waits")

    @staticmethod
    def _wanted(text: str, follower: int, options: dict[str, str]) -> FetchPartition:
        number, offset = map(int, text.split("@"))
        return FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=0,
            last_fetched_epoch=0 if follower >= 0 and offset else -1,
            log_start_offset=0 if follower >= 0 else -1,
            partition_max_bytes=int(options.get("max", str(1 << 20))),
        )

    def _tell(self, who: str, answer: FetchResponse, how: str = "") -> None:
        reader = self.readers[who]
        if answer.error_code:
            self.said.append(f"{who}: {ErrorCode(answer.error_code).name}")
            return
        reader.session = answer.session_id
        reader.epoch = reader.epoch + 1 if answer.session_id else 0
        number = (
            self.sessions.setdefault(answer.session_id, len(self.sessions) + 1) if answer.session_id else 0
        )
        session = f"session {number}, next epoch {reader.epoch}" if number else "no session"
        told = [_shown(data) for one in answer.responses for data in one.partitions]
        self.said.append(f"{who}{' ' * bool(how)}{how}: {session}: {'; '.join(told) or 'no news'}")


def _shown(data: PartitionData) -> str:
    if data.error_code:
        return f"{data.partition_index} {ErrorCode(data.error_code).name}"
    if data.preferred_read_replica >= 0:
        return f"{data.partition_index} is to be read from broker {data.preferred_read_replica}"
    records: Any = data.records
    size = len(records) if isinstance(records, bytes) else sum(part.length for part in records)
    return f"{data.partition_index} {'records' if size else 'no records'}, hw={data.high_watermark}"


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    with asyncio.Runner() as runner:
        story = Story(runner)
        try:
            check_script(path, story.play)
        finally:
            runner.run(story.close())
