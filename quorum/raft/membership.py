"""The check that a voter's files belong to the quorum that it is configured for, made before it votes.

Guarantees: a voter starts only among the same voters as ever (their addresses may change), and only with the
directory by which it introduces itself. Pure; `storage.py` calls it at every start.
"""

from __future__ import annotations

import base64

from quorum.raft.config import DIRECTORY_ID_BYTES, RaftConfig, RaftConfigError
from quorum.raft.quorum_state import QuorumState
from quorum.raft.snapshot import Snapshot


class MembershipError(RaftConfigError):
    """The configuration and the files contradict each other; the message is a sentence for the operator."""


def check_membership(
    config: RaftConfig, directory_id: str, state: QuorumState | None, newest: Snapshot | None
) -> None:
    """Raises MembershipError. `directory_id` is that of meta.properties now; `state` and `newest` come from the
    journal's folder."""
    if config.directory_id is not None and directory_id_bytes(directory_id) != config.directory_id:
        raise MembershipError(
            f"The data directory {config.directory} has the directory.id {directory_id} now, which is not the"
            " one that this node read from it when it started: start the node again."
        )
    known = () if state is None else state.voters
    if not known and newest is not None:
        known = newest.voters
    if known and set(known) != set(config.voters):
        raise MembershipError(
            f"controller.quorum.voters names the voters {_listed(config.voters)}, but this quorum was formed by"
            f" the voters {_listed(known)}, and voters can be neither added nor removed: give"
            " controller.quorum.voters the old ids again, on every node (addresses may be new)."
        )


def directory_id_bytes(text: str) -> bytes:
    """The 16 bytes of a directory id as it stands in meta.properties (22 characters of base64). Raises
    MembershipError."""
    try:
        decoded = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        decoded = b""
    if len(decoded) != DIRECTORY_ID_BYTES:
        raise MembershipError(
            f"The directory.id {text!r} in meta.properties is none: restore the file from a copy."
        )
    return decoded


def _listed(voters: tuple[int, ...] | dict[int, str]) -> str:
    return ", ".join(str(voter) for voter in sorted(voters))
