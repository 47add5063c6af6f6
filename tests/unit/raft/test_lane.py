"""The queue in front of the driver, and the thread that runs it."""

import asyncio
import random
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kraft.runtime import raft_lane
from kraft.runtime.raft_lane import ThreadRaftLane
from quorum.raft.config import FAST_TIMING, RaftConfig
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    NOT_COMMITTED,
    LeaderChanged,
    PeerConnected,
    PeerMessage,
    ProposalOutcome,
    Propose,
    QuorumReport,
    ReportQuorum,
    SendToPeer,
    TransferLeadership,
)
from quorum.raft.lane import Inbox, lost_event
from quorum.raft.messages import encode_message
from quorum.raft.storage import RaftStorageError
from tests.support.chain_machine import ChainMachine
from tests.support.scripted_voter import DIRECTORY, formatted_storage, simulated_disk


def test_a_full_inbox_loses_messages_but_never_news_of_links():
    inbox = Inbox(max_events=2, max_bytes=10)
    accepted = [inbox.put(PeerMessage(2, 1, b"1234")), inbox.put(PeerMessage(2, 1, b"1234567"))]
    accepted += [inbox.put(PeerMessage(2, 1, b"1")), inbox.put(Propose(1, b""))]
    accepted += [inbox.put(PeerConnected(3, 1))]
    assert accepted == [True, False, True, False, True]
    assert len(inbox.take()) == 3
    assert inbox.put(PeerMessage(2, 1, b"1234567890"))


def acknowledgement(sequence, **said):
    message = {"type": "next_node_idx", "next_node_idx": 9, "reset": False, "success": True}
    return PeerMessage(2, 1, encode_message(sequence, {**message, "term": 3, "log_end": 8, **said}))


def test_only_what_is_news_makes_a_step_due():
    inbox = Inbox()
    assert not inbox.is_due
    inbox.put(acknowledgement(1))
    assert inbox.is_due, "nobody has said so before"
    inbox.take()
    assert not inbox.is_due
    inbox.put(acknowledgement(2))
    inbox.put(acknowledgement(3))
    assert not inbox.is_due
    assert len(inbox) == 2, "the next step takes them in"
    inbox.put(Propose(1, b"x"))
    inbox.put(acknowledgement(4))
    assert inbox.is_due, "because of the proposal"


@pytest.mark.parametrize(
    "news",
    [
        acknowledgement(3, next_node_idx=10),
        acknowledgement(3, log_end=9),
        acknowledgement(3, term=4),
        acknowledgement(3, success=False),
        acknowledgement(3, success=False, reset=True),
        replace(acknowledgement(3), session=2),
        replace(acknowledgement(3), peer_id=3),
        PeerMessage(2, 1, encode_message(3, {"type": "take_leadership", "term": 3})),
        PeerMessage(2, 1, b"nonsense"),
        PeerMessage(2, 1, b"\xa4type\xadnext_node_idx"),
        PeerConnected(2, 2),
        ReportQuorum(1),
    ],
)
def test_whatever_differs_is_news(news):
    inbox = Inbox()
    inbox.put(acknowledgement(1))
    inbox.put(acknowledgement(2))
    inbox.take()
    inbox.put(news)
    assert inbox.is_due
    inbox.take()
    if isinstance(news, PeerMessage) and (news.peer_id, news.session) == (2, 1):
        inbox.put(acknowledgement(4))
        assert inbox.is_due, "it is not what was said last"


def test_a_failure_that_is_told_again_is_no_repetition():
    """The leader has to go back further, and at once."""
    inbox = Inbox()
    for sequence in (1, 2):
        inbox.put(acknowledgement(sequence, success=False, reset=True))
        assert inbox.is_due
        inbox.take()


def test_lost_events_are_answered_where_they_have_an_answer():
    assert lost_event(Propose(5, b"x")) == [ProposalOutcome(5, None, NOT_COMMITTED)]
    assert lost_event(ReportQuorum(6)) == [QuorumReport(6, leads=False)]
    assert lost_event(PeerMessage(2, 1, b"x")) == []


class Runner:
    """One voter on a thread lane, and what it delivered."""

    def __init__(self, node_id, voters, halt):
        loop = asyncio.get_running_loop()
        self.node_id, self.peers, self.threads = node_id, {}, set()
        self.active = asyncio.Event()
        self.outcomes = {}
        self.lane = ThreadRaftLane(loop)
        config = RaftConfig(
            node_id=node_id,
            voters=dict.fromkeys(voters, ""),
            cluster_id="cluster",
            directory=DIRECTORY,
            timing=FAST_TIMING,
        )
        disk = simulated_disk(formatted_storage(node_id))
        self.factory = lambda: RaftDriver(
            config=config,
            disk=disk,
            clock=loop.time,
            wall_ms=lambda: 0,
            rng=random.Random(node_id),
            halt=halt,
            state_machine=ChainMachine(),
        )

    def deliver(self, effects):
        self.threads.add(threading.get_ident())
        for effect in effects:
            if isinstance(effect, SendToPeer):
                self.peers[effect.peer_id].lane.post(PeerMessage(self.node_id, 1, effect.data))
            elif isinstance(effect, LeaderChanged):
                (self.active.set if effect.active else self.active.clear)()
            elif isinstance(effect, ProposalOutcome):
                self.outcomes.pop(effect.request_id).set_result(effect)

    async def propose(self, request_id):
        outcome = self.outcomes[request_id] = asyncio.get_running_loop().create_future()
        self.lane.post(Propose(request_id, b"proposal"))
        return await outcome


async def test_three_lanes_elect_a_leader_and_commit():
    halts = []
    runners = {node_id: Runner(node_id, (1, 2, 3), halts.append) for node_id in (1, 2, 3)}
    for runner in runners.values():
        runner.peers = runners
        runner.lane.start(runner.factory, runner.deliver)
    for one in runners:
        for other in runners:
            if one != other:
                runners[one].lane.post(PeerConnected(other, 1))
    async with asyncio.timeout(20):
        waiting = [asyncio.ensure_future(runner.active.wait()) for runner in runners.values()]
        _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        leader = next(runner for runner in runners.values() if runner.active.is_set())
        outcomes = [await leader.propose(number) for number in range(5)]
    for runner in runners.values():
        runner.lane.stop()
    assert [outcome.error for outcome in outcomes] == [None] * 5
    assert leader.threads == {threading.get_ident()}
    assert halts == []
    assert not [thread for thread in threading.enumerate() if thread.name == "raft-lane"]


async def test_what_the_factory_raises_comes_out_of_start():
    runner = Runner(1, (1,), halt=lambda reason: None)

    def broken():
        raise RaftStorageError("not formatted")

    with pytest.raises(RaftStorageError):
        runner.lane.start(broken, runner.deliver)
    runner.lane.stop()


async def test_nothing_is_delivered_after_stop(monkeypatch):
    runner = Runner(1, (1,), halt=lambda reason: None)
    loop, scheduled, delivered = asyncio.get_running_loop(), threading.Event(), []
    call_soon = loop.call_soon_threadsafe

    def note(callback, *arguments):
        handle = call_soon(callback, *arguments)
        if arguments and isinstance(arguments[0], list):
            scheduled.set()
        return handle

    monkeypatch.setattr(loop, "call_soon_threadsafe", note)
    loop.set_exception_handler(lambda loop, context: delivered.append(context))
    runner.lane.start(runner.factory, delivered.append)
    assert scheduled.wait(20), "and it waits for this loop's next turn"
    runner.lane.stop()
    runner.lane.post(Propose(1, b"late"))
    await asyncio.sleep(0)
    assert delivered == []


async def test_what_is_for_peers_is_sent_without_the_event_loop():
    """A loop that is busy for long must not cost an election."""
    runner = Runner(1, (1, 2, 3), halt=lambda reason: None)
    sent = []
    asked = threading.Event()

    def send(message):
        sent.append((message.peer_id, threading.current_thread().name))
        asked.set()

    runner.lane.start(runner.factory, runner.deliver, send)
    runner.lane.post(PeerConnected(2, 1))
    assert asked.wait(20), "while this loop does not turn"
    runner.lane.stop()
    assert set(sent) == {(2, "raft-lane")}


class Steps:
    """The steps that a lane makes, at a time that the test tells it."""

    def __init__(self, lane, monkeypatch):
        self.lane, self.now_s = lane, time.monotonic()
        self.transferred = threading.Event()
        self._made = threading.Semaphore(0)
        step = RaftDriver.step

        def noted(driver, events):
            if TransferLeadership() in events:
                self.transferred.set()
            effects = step(driver, events)
            self._made.release()
            return effects

        monkeypatch.setattr(RaftDriver, "step", noted)
        monkeypatch.setattr(raft_lane, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def after(self, duration_s):
        """Returns when a whole step has been made so much later."""
        self.now_s += duration_s
        while self._made.acquire(blocking=False):
            continue
        for _ in range(2):  # the first of them may have begun before
            self.lane.post(ReportQuorum(0))
            assert self._made.acquire(timeout=20)


async def test_a_loop_that_stands_still_hands_its_leadership_over(monkeypatch):
    """Links and lane go on without it, so that nobody else would notice."""
    runner = Runner(1, (1, 2, 3), halt=lambda reason: None)
    steps = Steps(runner.lane, monkeypatch)
    runner.lane.start(runner.factory, runner.deliver, lambda message: None)
    for _ in range(4):
        await asyncio.to_thread(steps.after, raft_lane.STILL_MAX_S * 0.6)
    assert not steps.transferred.is_set(), "as long as the loop turns"
    steps.after(raft_lane.ASK_EVERY_S * 2)
    steps.after(raft_lane.STILL_MAX_S * 0.9)
    assert not steps.transferred.is_set(), "it may only be busy"
    steps.after(raft_lane.STILL_MAX_S * 0.2)
    assert steps.transferred.is_set()
    runner.lane.stop()
