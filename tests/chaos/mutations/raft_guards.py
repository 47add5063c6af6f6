"""Mutations of a voter's guards against messages that are not listed, logs with holes, pickles, and too much at once.

They play where `kraft chaos quorum` plays, with peers that send forbidden messages, and with a library that loses an
entry in the middle of a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgpack

from kraft.chaos.quorum.machine import BareBytes
from kraft.chaos.quorum.settings import Settings
from quorum.raft import driver, messages
from quorum.raft.compat import _Pickle, running
from quorum.raft.driver import RaftDriver
from quorum.raft.journal import DurableJournal
from quorum.raft.messages import MESSAGE_TYPES
from quorum.raft.node import RaftNode
from quorum.raft.transport import QuorumTransport
from tests.chaos.mutations.raft_journal import DEPOSED_LEADERS, QUORUM
from tests.chaos.mutations.raft_stages import BrokenWithin
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import RaftStage, default

INSULTED = RaftStage(
    "quorum of peers that say what they must not",
    lambda seed: Settings(virtual_s=6.0, faults={"stranger": 15.0, "isolate-controller": 0.6}),
)
SMALL_BYTES = 60


def _loses_an_entry(original: Callable[..., None]) -> Callable[..., None]:
    def deliver(node: Any, peer: Any, message: dict[str, Any]) -> None:
        entries = message.get("entries", ())
        if len(entries) >= 3 and crc32(entries[1][0]) % 4 == 0:
            message = {**message, "entries": (entries[0], *entries[2:])}
        original(node, peer, message)

    return deliver


def _fails_now_and_then(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(machine: Any, data: bytes, offset: int, epoch: int) -> Any:
        if offset % 40 == 39:
            raise ZeroDivisionError("a defect")
        return original(machine, data, offset, epoch)

    return apply


LOSSY_LIBRARY = BrokenWithin(
    "quorum of voters whose library loses an entry in the middle of others",
    lambda seed: Settings(propose=0.6, append_bytes=2000, faults={"kill": 0.3}),
    broken=(Patch(RaftNode, "deliver", _loses_an_entry),),
    right_halt="and was handed entry",
)
DEFECTIVE = BrokenWithin(
    "quorum of voters with a defect",
    lambda seed: Settings(virtual_s=6.0, faults={"kill": 0.6}),
    broken=(Patch(BareBytes, "apply", _fails_now_and_then),),
    right_halt="a defect",
)
SMALL_PROPOSALS = BrokenWithin(
    "quorum of small proposals",
    lambda seed: Settings(virtual_s=6.0, faults={"kill": 0.6}),
    broken=tuple(default(module, "MAX_PROPOSAL_BYTES", SMALL_BYTES) for module in (driver, messages)),
)


def _appends_anywhere(original: Callable[..., None]) -> Callable[..., None]:
    def add(journal: Any, command: bytes, idx: int, term: int) -> None:
        if idx - journal._entries[0][1] > len(journal._entries):
            journal._append((command, idx, term))
        else:
            original(journal, command, idx, term)

    return add


def _asked_for_anew(original: Callable[..., None]) -> Callable[..., None]:
    """Sends from where it is asked to."""

    def on_next_node_idx(transport: Any, peer: Any, message: dict[str, Any]) -> None:
        asked = message["next_node_idx"]
        original(transport, peer, message)
        if message["reset"] and message["term"] == transport.node.term() and transport.node.is_leader():
            transport.node._SyncObj__raftNextIndex[peer] = max(asked, 2)

    return on_next_node_idx


def _obeys_the_library(original: Callable[..., None]) -> Callable[..., None]:
    """What is not on the list goes to the library, as it does in the one that is shipped."""

    def receive(transport: Any, peer_id: int, session: int, data: bytes) -> None:
        link = transport._links.get(peer_id)
        try:
            _, message = msgpack.unpackb(data, raw=False, use_list=False)
            is_listed = message["type"] in MESSAGE_TYPES and "transmission" not in message
        except (ValueError, TypeError, msgpack.UnpackException):
            is_listed = True
        if link is None or link.session != session or is_listed:
            original(transport, peer_id, session, data)
        else:
            transport.node.deliver(link.peer, message)

    return receive


def _only_the_type(message: dict[str, Any]) -> None:
    if message.get("type") not in MESSAGE_TYPES:
        raise messages.MessageRefusedError("unknown type of message")


def _proposes_any_size(voter: Any, event: Any) -> None:
    if not voter._node.barrier_applied() or not voter._may_record(event.proposal):
        voter._effects.append(driver.ProposalOutcome(event.request_id, None, driver.NOT_COMMITTED))
        return
    voter._pending[voter._node.propose(event.proposal)] = (voter._node.term(), event.request_id)


def _goes_on_regardless(voter: Any, events: Any) -> list[Any]:
    """As the library does where it is shipped: what goes wrong is logged."""
    with running(voter._world):
        try:
            voter._run(events)
        except ZeroDivisionError:
            pass
    effects, voter._effects = voter._effects, []
    return effects


def _says_so_at_once(original: Callable[..., None]) -> Callable[..., None]:
    def propose(voter: Any, event: Any) -> None:
        original(voter, event)
        for offset, (_, request_id) in list(voter._pending.items()):
            if request_id == event.request_id:
                del voter._pending[offset]
                voter._effects.append(driver.ProposalOutcome(request_id, offset, None))

    return propose


def _forgets_what_it_has_said(original: Callable[..., None]) -> Callable[..., None]:
    def note(voter: Any) -> None:
        pending = dict(voter._pending)
        original(voter)
        voter._pending.update(pending)

    return note


MUTATIONS = (
    Mutation(
        "hole-in-the-log",
        "a follower appends an entry that does not follow its last",
        ("applied-prefix", "log-matching"),
        LOSSY_LIBRARY,
        (Patch(DurableJournal, "add", _appends_anywhere),),
        faces="all behind the hole is applied under another index, or compared with it",
    ),
    Mutation(
        "acknowledged-entries-sent-again",
        "a leader that is asked to go back goes back behind what is acknowledged",
        ("no-needless-resend",),
        DEPOSED_LEADERS,
        (Patch(QuorumTransport, "_on_next_node_idx", _asked_for_anew),),
    ),
    Mutation(
        "unlisted-message-obeyed",
        "what a peer says goes to the library, listed or not: it forwards commands, and orders elections",
        ("only-listed-messages",),
        INSULTED,
        (Patch(QuorumTransport, "receive", _obeys_the_library),),
    ),
    Mutation(
        "fields-unchecked",
        "of a message only the type is compared with the list, not what comes with it",
        ("only-listed-messages",),
        INSULTED,
        (Patch(messages, "_check_shape", replaced_by(_only_the_type)),),
    ),
    Mutation(
        "order-of-entries-unchecked",
        "a message may bring entries with a hole, or of a term later than its sender's",
        ("only-listed-messages",),
        INSULTED,
        (Patch(messages, "_check_order", replaced_by(lambda message: None)),),
    ),
    Mutation(
        "pickle-loaded",
        "a peer may send an entry in pieces, which the library unpickles",
        ("nothing-unpickled",),
        INSULTED,
        (
            Patch(QuorumTransport, "receive", _obeys_the_library),
            Patch(_Pickle, "__getattr__", replaced_by(lambda shut, name: getattr(shut._shipped, name))),
        ),
    ),
    Mutation(
        "proposal-of-any-size",
        "a leader appends a proposal that is larger than its peers take",
        ("only-listed-messages",),
        SMALL_PROPOSALS,
        (Patch(RaftDriver, "_propose", replaced_by(_proposes_any_size)),),
    ),
    Mutation(
        "defect-passed-over",
        "a voter that cannot apply an entry goes on as if nothing had happened",
        ("liveness",),
        DEFECTIVE,
        (Patch(RaftDriver, "step", replaced_by(_goes_on_regardless)),),
    ),
    Mutation(
        "acknowledged-when-appended",
        "a proposal is reported as committed when the leader alone has it",
        ("acknowledged-survives",),
        QUORUM,
        (Patch(RaftDriver, "_propose", _says_so_at_once),),
    ),
    Mutation(
        "outcome-told-twice",
        "a leader that lost its office says of its proposals that nobody knows, and what became of them as well",
        ("one-outcome",),
        QUORUM,
        (Patch(RaftDriver, "_note_leadership", _forgets_what_it_has_said),),
    ),
)
