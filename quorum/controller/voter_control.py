"""The records of voters' directories that the metadata lack (KIP-853).

The Raft layer tells the facts: the directories that elected the first leader, and the voter on a new disk that has
every committed entry. This module makes one record for each voter whose directory differs from the image's. Pure;
`ControllerState` calls it.
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
