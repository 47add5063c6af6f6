"""The text format of `leader-epoch-checkpoint`."""

from __future__ import annotations

import pytest

from leader_epoch.checkpoint import EpochCheckpointError, decode_checkpoint, encode_checkpoint
from leader_epoch.epoch_cache import EpochEntry


def test_format_is_kafkas() -> None:
    assert encode_checkpoint([EpochEntry(0, 0), EpochEntry(7, 1234)]) == b"0\n2\n0 0\n7 1234\n"
    assert encode_checkpoint([]) == b"0\n0\n"


def test_round_trip() -> None:
    entries = (EpochEntry(0, 0), EpochEntry(3, 17), EpochEntry(2**31 - 1, 2**62))
    assert decode_checkpoint(encode_checkpoint(entries)) == entries


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "before its entry count"),
        (b"0\n", "before its entry count"),
        (b"1\n0\n", "version"),
        (b"0\nx\n", "no entry count"),
        (b"0\n2\n0 0\n", "announces 2 entries and holds 1"),
        (b"0\n1\n0 0\n1 5\n", "announces 1 entries and holds 2"),
        (b"0\n1\n0 1", "announces 1"),
        (b"0\n1\n0 -1\n", "malformed line"),
        (b"0\n1\n0\n", "malformed line"),
        (b"0\n2\n1 5\n1 6\n", "goes back"),
        (b"0\n2\n1 5\n2 5\n", "goes back"),
        (b"\x00\x00\x00\x00", "before its entry count"),
    ],
)
def test_refuses_what_it_did_not_write(content: bytes, reason: str) -> None:
    with pytest.raises(EpochCheckpointError, match=reason):
        decode_checkpoint(content)
