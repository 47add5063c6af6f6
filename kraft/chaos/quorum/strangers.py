"""What no voter may say, and what becomes of a voter that hears it: nothing.

A peer that is broken, of another version, or in somebody else's hands says what the Raft library would obey and
what is not on the list of `quorum.raft.messages`: commands, orders, pickles, entries with holes, fields that
are missing, of the wrong type or too many. The voter must stay as it was, say nothing, and go on. Played
between two steps of a voter by `voter`.
"""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import msgpack

from kraft.chaos.quorum.judge import Violation
from quorum.raft.compat import running
from quorum.raft.driver import RaftDriver
from quorum.raft.messages import PROPOSAL, encode_message
from quorum.raft.node import RaftNode

FIRST_SEQUENCE = 1 << 40
"""Above any that the session has seen, so that nothing is dropped as old."""

_unpickled: list[str] = []


def _unpickle(what: str) -> str:
    _unpickled.append(what)
    return what


class _Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return _unpickle, ("a peer's pickle",)


def insult(driver: RaftDriver, rng: Random) -> bool:
    """Some peer says something that is not on the list; false if no peer is linked. Raises Violation if the
    voter minds."""
    links = driver._transport._links
    if not links:
        return False
    peer_id = rng.choice(sorted(links))
    name, messages = rng.choice(_words(driver._node, rng))
    before = _standing(driver)
    _unpickled.clear()
    error: Exception | None = None
    with running(driver._world):
        try:
            for data in messages:
                driver._transport.receive(peer_id, links[peer_id].session, data)
            driver._node.append_commands()
        except Exception as raised:  # noqa: BLE001 - whatever it is, the lane would have met it
            error = raised
    voter = driver._config.node_id
    if _unpickled:
        raise Violation("nothing-unpickled", f"voter {voter} unpickled what a peer sent")
    if error is not None:
        raise Violation("only-listed-messages", f"{name} made voter {voter} fail: {error!r}")
    changed = [key for key, value in _standing(driver).items() if value != before[key]]
    if changed:
        raise Violation("only-listed-messages", f"{name} changed voter {voter}: {', '.join(changed)}")
    return True


def _standing(driver: RaftDriver) -> dict[str, Any]:
    """All that a message could move."""
    node, journal = driver._node, driver._journal
    return {
        "term": node.term(),
        "vote": journal.getVotedForNodeId(),
        "leader": node.leader_id(),
        "log end": (len(journal), node.log_end(), node.log_end_term()),
        "commit index": node.commit_index(),
        "applied": (node.last_applied(), driver._machine.image[:2]),
        "deadline": node.election_deadline_s(),
        "consent": (driver._transport._pre_vote.round, driver._transport._pre_vote.is_open(node.term())),
        "messages": len(driver._transport.outbox),
        "snapshot": driver._transfer.incoming.arrival,
        "halted": driver._halting.reason,
    }


def _words(node: RaftNode, rng: Random) -> list[tuple[str, list[bytes]]]:
    """By name. Terms and offsets fit, so that nothing else stands in the way."""
    term, end = node.term(), node.log_end()
    at_end = {"term": term, "commit_index": 0, "prevLogIdx": end, "prevLogTerm": node.log_end_term()}
    command = PROPOSAL + rng.randbytes(4)
    bomb = pickle.dumps(_Bomb())
    append = {"type": "append_entries", **at_end}
    vote = {"type": "request_vote", "term": term + 1, "last_log_index": end, "last_log_term": term}
    said: dict[str, list[dict[str, Any]]] = {
        "a forwarded command": [{"type": "apply_command", "command": command}],
        "a forwarded command with a number": [{"type": "apply_command", "command": command, "request_id": 1}],
        "an answer to a forwarded command": [{"type": "apply_command_response", "request_id": 1, "error": 1}],
        "an order to stand at once": [{"type": "timeout_now", "term": term}],
        "a pickle in pieces": [
            {**append, "transmission": "start", "data": bomb[:9]},
            {**append, "transmission": "finish", "data": bomb[9:]},
        ],
        "entries with a hole": [
            {**append, "entries": [(command, end + 1, term), (command, end + 3, term)]},
        ],
        "entries of a later term": [{**append, "entries": [(command, end + 1, term + 1)]}],
        "an entry that is no command": [{**append, "entries": [(b"\x07", end + 1, term)]}],
        "a vote asked for without a log": [{"type": "request_vote", "term": term + 1}],
        "a vote asked for in half a term": [{**vote, "term": term + 0.5}],
        "a vote asked for by the way": [{**vote, "password": "?"}],
        "a truth for a term": [{"type": "response_vote", "term": True}],
        "an endless term": [{"type": "next_node_idx", "term": 1 << 40, "next_node_idx": 1, "reset": False}],
    }
    words = [
        (name, [encode_message(FIRST_SEQUENCE + number, message) for number, message in enumerate(messages)])
        for name, messages in said.items()
    ]
    words.append(("noise", [rng.randbytes(rng.randrange(1, 40))]))
    words.append(("no pair", [msgpack.packb([FIRST_SEQUENCE, vote, 1])]))
    return words
