"""How far a broker has followed the cluster's metadata, and whose: a file in each of its data directories.

Guarantees: a file that was not written whole, or has changed since, is told from a position by its checksum.
The broker's history guard writes and judges it; `kraft log` shows it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

METADATA_POSITION: Final = "metadata-position-checkpoint"
_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class MetadataPosition:
    """What identifies a point in a quorum's history: offset and epoch of its last record, the directory ids
    of its voters (hexadecimal; none before the quorum has recorded them)."""

    offset: int
    epoch: int
    voters: frozenset[str]

    def encode(self) -> bytes:
        """The content of the file: one line of JSON, and its CRC-32C."""
        fields = {
            "version": _VERSION,
            "offset": self.offset,
            "epoch": self.epoch,
            "voters": sorted(self.voters),
        }
        body = json.dumps(fields).encode()
        return b"%s\n%08x\n" % (body, crc32c(body))

    @classmethod
    def decode(cls, content: bytes) -> MetadataPosition:
        """Raises ValueError if the content is not exactly that of a file that was written whole."""
        body, _, checksum = content.partition(b"\n")
        if checksum != b"%08x\n" % crc32c(body):
            raise ValueError(f"the checksum of its {len(content)} bytes is wrong")
        fields = json.loads(body)
        try:
            if fields["version"] != _VERSION:
                raise ValueError("it is of another version")
            return cls(fields["offset"], fields["epoch"], frozenset(fields["voters"]))
        except (KeyError, TypeError) as error:
            raise ValueError("it does not hold an offset, an epoch and voters") from error

    def contradiction(self, later: MetadataPosition) -> str | None:
        """Why `later` cannot follow this position in one history; None if it can.

        A committed record stays, so neither offset nor epoch falls; and voters are given new disks one by
        one, each recorded by the others, so they are not strangers all at once.
        """
        if later.offset < self.offset:
            return f"end at offset {later.offset}, and this broker had followed them to offset {self.offset}"
        if later.epoch < self.epoch:
            return f"are of epoch {later.epoch}, and this broker had followed them in epoch {self.epoch}"
        if self.voters and not self.voters & later.voters:
            return "come from voters none of which has the directory that it had when this broker last ran"
        return None
