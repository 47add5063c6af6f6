"""Replicas' files compared below the high watermark."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from kraft.chaos.real.closing import compare, defects, log_lines, resent
from partitions.records.builder import build_batch

NAME = ("orders", 0)


def folders(root: Path, **copies: list[bytes]) -> dict[int, Path]:
    """Data directories with these segments each, by names like node_1."""
    found = {}
    for name, segments in copies.items():
        node = int(name.rpartition("_")[2])
        found[node] = root / name
        (found[node] / "orders-0").mkdir(parents=True)
        for number, data in enumerate(segments):
            (found[node] / "orders-0" / f"{number:020d}.log").write_bytes(data)
    return found


def batch(offset: int, value: bytes, epoch: int = 0) -> bytes:
    return build_batch([(1, None, value, ())], base_offset=offset, leader_epoch=epoch)


A, B, C = batch(0, b"a"), batch(1, b"b"), batch(2, b"c")


def test_equal_copies_are_equal_wherever_their_segments_begin(tmp_path: Path) -> None:
    dirs = folders(tmp_path, node_1=[A + B + C], node_2=[A, B])
    (found,) = compare(dirs, {NAME: (1, 2)}, {NAME: (0, 2)})
    assert (found.equal, found.compared, found.problem) == (True, (1, 2), "")


def test_a_difference_is_found_and_placed(tmp_path: Path) -> None:
    dirs = folders(tmp_path, node_1=[A + B], node_2=[A + batch(1, b"x")], node_3=[A + batch(1, b"b", 1)])
    (found,) = compare(dirs, {NAME: (1, 2, 3)}, {NAME: (0, 2)})
    assert found.equal is False
    assert found.problem == (
        "node 2 and node 1 differ in orders-0 from offset 1 on; node 3 and node 1 differ in orders-0 from offset 1 on"
    )


def test_what_is_behind_or_damaged_is_not_compared(tmp_path: Path) -> None:
    torn = bytearray(A + B)
    torn[len(A) + 62] ^= 1
    dirs = folders(tmp_path, node_1=[A + B], node_2=[A], node_3=[bytes(torn)])
    (found,) = compare(dirs, {NAME: (1, 2, 3, 4)}, {NAME: (0, 2)})
    assert (found.equal, found.compared) == (True, (1,))
    assert "node 2 has orders-0 up to 1 of 2" in found.problem
    assert f"node 3: orders-0/00000000000000000000.log, byte {len(A)}" in found.problem


@pytest.mark.parametrize(
    ("expiring", "equal", "problem"),
    [((), False, "node 2 and node 1 differ in orders-0 from offset 0 on"), (("orders",), True, "")],
)
def test_a_replica_that_lacks_the_beginning_differs_unless_records_expire(
    tmp_path: Path, expiring: tuple[str, ...], equal: bool, problem: str
) -> None:
    dirs = folders(tmp_path, node_1=[A + B + C], node_2=[B + C])
    (found,) = compare(dirs, {NAME: (1, 2)}, {NAME: (0, 3)}, expiring)
    assert (found.equal, found.problem) == (equal, problem)


def test_a_replica_that_is_longer_than_the_others_differs(tmp_path: Path) -> None:
    """One batch of two copies is missing in the middle of one of them, and nobody's is behind."""
    dirs = folders(tmp_path, node_1=[A + B + C], node_2=[A + C])
    (found,) = compare(dirs, {NAME: (1, 2)}, {NAME: (0, 3)})
    assert (found.equal, found.problem) == (False, "node 2 and node 1 differ in orders-0 from offset 1 on")


def test_what_is_before_the_log_start_is_not_compared(tmp_path: Path) -> None:
    dirs = folders(tmp_path, node_1=[A + B + C], node_2=[B + C])
    (found,) = compare(dirs, {NAME: (1, 2)}, {NAME: (1, 3)})
    assert (found.equal, found.problem) == (True, "")


def test_an_offset_that_does_not_fit_is_damage(tmp_path: Path) -> None:
    """No checksum covers it."""
    rotted = batch(1 << 40, b"b")
    dirs = folders(tmp_path, node_1=[A + B + C], node_2=[A + rotted + C])
    (found,) = compare(dirs, {NAME: (1, 2)}, {NAME: (0, 3)})
    assert (found.equal, found.compared) == (True, (1,))
    assert f"byte {len(A + rotted)}: offset 2 is behind {(1 << 40) + 1}" in found.problem


def test_without_an_end_nothing_can_be_told(tmp_path: Path) -> None:
    (found,) = compare(folders(tmp_path, node_1=[A]), {NAME: (1,)}, {})
    assert found.equal is None


def test_empty_copies_are_equal(tmp_path: Path) -> None:
    (found,) = compare(folders(tmp_path, node_1=[b""], node_2=[]), {NAME: (1, 2)}, {NAME: (0, 0)})
    assert (found.equal, found.compared) == (True, (1, 2))


def sent(offset: int, value: bytes, *, producer: int = 7, epoch: int = 0, sequence: int = 0) -> bytes:
    return build_batch(
        [(1, None, value, ())],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@pytest.mark.parametrize(
    ("second", "is_its_own"),
    [
        (sent(1, b"a", epoch=1), True),
        (sent(1, b"a", sequence=1), False),
        (sent(1, b"a", producer=8, epoch=1), False),
        (batch(1, b"a"), False),
    ],
)
def test_only_a_newer_epoch_of_the_same_producer_makes_a_copy_the_client_s_own(
    tmp_path: Path, second: bytes, is_its_own: bool
) -> None:
    dirs = folders(tmp_path, node_1=[sent(0, b"a") + second])
    found = resent(dirs, {NAME: (1,)}, {NAME: {b"a": [0, 1]}})
    assert found == ({(NAME, 1)} if is_its_own else set())


LOG = """2026-11-26 18:30:57.408764 INFO    logs opened logs=0 clean=False
2026-11-26 18:30:58.000000 WARNING fsync is slow took_ms=900
Kafka Server started
2026-11-26 18:30:59.000000 INFO    leads partition=orders-0 epoch=0
"""


def test_lines_worth_showing_have_the_run_s_time() -> None:
    began_s = datetime(2026, 11, 26, 18, 30, 57).astimezone().timestamp()
    lines = log_lines({1: LOG}, began_s, 60.0)
    assert [(line.at_s, line.node, line.level) for line in lines] == [
        (1.0, "node 1", "warning"),
        (2.0, "node 1", "info"),
    ]


def test_a_stack_is_a_defect() -> None:
    assert defects([(1, LOG)]) == []
    (told,) = defects([(1, LOG), (2, LOG + "Traceback (most recent call last):\n  ...\nKeyError: 1\n")])
    assert told.startswith("node 2 reports a defect: Traceback")
