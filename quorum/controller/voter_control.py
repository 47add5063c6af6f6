"""Decides which directories of voters the metadata have to record (KIP-853).

The Raft layer says what is so: which directories elected the first leader, which voter on a new disk has
everything committed. Here it becomes records, one for each voter whose directory is another than the one
in the image. Pure; used by `ControllerState`.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorum.controller.decision import Unit
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import VoterIdentity


def record_voters(image: MetadataImage, directories: Mapping[int, bytes]) -> list[Unit]:
    """One unit, so that the first directories are recorded together; nothing if all are in the image.
    `directories`: 16-byte directory ids by voter."""
    missing = [
        VoterIdentity(voter, directories[voter])
        for voter in sorted(directories)
        if image.voters.get(voter) != directories[voter]
    ]
    return [Unit(*missing)] if missing else []
