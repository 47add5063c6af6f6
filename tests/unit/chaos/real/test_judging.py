"""Planted anomalies in the histories of real runs, and what excuses them: nothing that the journal does not show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft.chaos.experiments.evidence import FaultEvidence, Journal, MetadataChange
from kraft.chaos.group_history import GroupAction, GroupProtocol, Sender
from kraft.chaos.history import OperationStatus
from kraft.chaos.real.coordinators import UnreadableLogError, commit_places, oldest_epoch
from kraft.chaos.real.judging import Findings, Judged, judge_histories
from kraft.chaos.real.workload.consumers import FINAL_MEMBER, member_of
from kraft.chaos.real.workload.recorder import Recorder
from kraft.chaos.transaction_history import TransactionEnd
from kraft.coordinator.groups.offset_records import Committed, Place, encode
from partitions.records.builder import build_batch
from tests.unit.chaos.experiments.planted import FAULT, experiment

OFFSETS = "__consumer_offsets"
TOPIC_ID = b"o" * 16
ELECTED_S = 9.9
CONSUMER = "kind: consumer, topic: orders"
GROUP = "kind: group, topic: orders, group: g"


def change(at_s: float, leader: int, epoch: int, topic: str = "orders") -> MetadataChange:
    return MetadataChange(at_s, round(10 * at_s) + 50, topic, 0, leader, epoch, (1, 2, 3))


JOURNAL = Journal(
    (change(-3.0, 1, 0), change(ELECTED_S, 2, 1)),
    internal=(
        change(-2.0, 1, 0, OFFSETS),
        change(ELECTED_S, 2, 1, OFFSETS),
        change(40.0, -1, 2, OFFSETS),
    ),
)
"""Node 1, which led everything, was killed at 7 s; node 2 was elected; at the end all nodes were stopped."""


@pytest.fixture
def recorder() -> Recorder:
    made = Recorder({"orders": TOPIC_ID}, {"orders": 1})
    made.origin_s -= 30.0
    return made


def at(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, now_s: float) -> None:
    """The clock of the run stands there."""
    monkeypatch.setattr(recorder, "clock", lambda: recorder.origin_s + now_s)


def judged(recorder: Recorder, found: Findings, workload: str = CONSUMER) -> Judged:
    recorder.finish()
    return judge_histories(experiment((CONSUMER, workload)), recorder, (FAULT,), found)


def oracles(told: Judged) -> set[str]:
    return {one.name for one in told.anomalies}


# -- copies


@pytest.mark.parametrize(
    ("sent_s", "journal", "is_excused"),
    [
        (9.0, JOURNAL, True),
        (9.0, Journal(JOURNAL.partitions[:1]), False),
        (20.0, JOURNAL, False),
        (9.0, None, False),
    ],
    ids=["an election", "no change", "long after it", "no journal"],
)
def test_a_client_s_own_copy_is_excused_by_what_made_it_number_anew(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    sent_s: float,
    journal: Journal | None,
    is_excused: bool,
) -> None:
    at(recorder, monkeypatch, sent_s)
    send = recorder.send("p", "orders", 0, (b"a",), acks=-1, idempotent=True)
    at(recorder, monkeypatch, sent_s + 2)
    recorder.sent(send, OperationStatus.OK, 0)
    recorder.polled(
        "final", "orders", 0, recorder.clock(), 0, [(0, b"a"), (1, b"a")], 2, sought=True, final=True
    )
    told = judged(recorder, Findings(resent={(("orders", 0), 1)}, journal=journal))
    assert ("duplicate" in oracles(told)) is not is_excused
    assert bool(told.excused) is is_excused


# -- transactions


@pytest.mark.parametrize(
    ("end", "read", "oracle"),
    [
        (TransactionEnd.COMMITTED, True, None),
        (TransactionEnd.ABORTED, False, None),
        (TransactionEnd.ABORTED, True, "aborted-read"),
        (TransactionEnd.COMMITTED, False, "lost-transaction"),
    ],
)
def test_what_a_transaction_wrote_is_read_if_and_only_if_it_was_committed(
    recorder: Recorder, end: TransactionEnd, read: bool, oracle: str | None
) -> None:
    transaction = recorder.begin("payer", "p.1")
    recorder.write(transaction, "orders", 0, (b"a",)).base_offset = 0
    transaction.commit_asked_s = recorder.clock()
    transaction.end = end
    recorder.ended(transaction, "orders", OperationStatus.OK)
    records = [(0, b"a")] if read else []
    recorder.polled_committed("final", "orders", 0, 0, records, 2, final=True)
    recorder.transactions.log_starts[recorder.key("orders", 0)] = 0
    told = judged(recorder, Findings(journal=JOURNAL))
    assert oracles(told) == ({oracle} if oracle else set())


# -- groups


def written(folder: Path, *tags: str, epoch: int = 0, first: int = 0) -> dict[int, Path]:
    """The disk of node 2, on which these commits stand."""
    log = folder / f"{OFFSETS}-0"
    log.mkdir()
    data = b""
    for number, tag in enumerate(tags):
        record = encode(Place("g", "orders", 0), Committed(number, -1, tag, 1, -1, TOPIC_ID))
        data += build_batch(
            [(1, record.key, record.value, ())], base_offset=first + number, leader_epoch=epoch
        )
    (log / f"{0:020d}.log").write_bytes(data)
    return {2: folder}


class Story:
    """A group whose member commits `a` and then `b`, and what its coordinator tells at the end."""

    def __init__(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorder = recorder
        self._monkeypatch = monkeypatch

    def goes_on(self, now_s: float) -> None:
        at(self.recorder, self._monkeypatch, now_s)

    def assigned(self, member: str) -> None:
        operation = self.recorder.asked(GroupAction.ASSIGNED, Sender("g", GroupProtocol.CLASSIC, member, 1))
        self.recorder.answered(operation, OperationStatus.OK, owned=[self.recorder.key("orders", 0)])

    def committed(self, tag: str, offset: int) -> None:
        sender = Sender("g", GroupProtocol.CLASSIC, "m", 1)
        operation = self.recorder.asked(GroupAction.COMMIT, sender, ("orders", 0), offset=offset, tag=tag)
        self.recorder.answered(operation, OperationStatus.OK)

    def told(self, tag: str, offset: int, member: str = FINAL_MEMBER) -> None:
        sender = Sender("g", GroupProtocol.CLASSIC, member, -1)
        operation = self.recorder.asked(GroupAction.FETCH, sender, ("orders", 0))
        self.recorder.answered(operation, OperationStatus.OK, tag=tag, offset=offset)


@pytest.fixture
def story(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Story:
    made = Story(recorder, monkeypatch)
    made.goes_on(1.0)
    made.assigned("m")
    made.committed("a", 0)
    made.committed("b", 1)
    made.goes_on(25.0)
    return made


@pytest.mark.parametrize(
    ("tag", "offset", "oracle"),
    [("b", 1, None), ("a", 0, "lost-commit"), ("", -1, "lost-commit"), ("x", 1, "unmade-commit")],
)
def test_a_group_is_told_its_last_commit(
    story: Story, tmp_path: Path, tag: str, offset: int, oracle: str | None
) -> None:
    story.told(tag, offset)
    told = judged(
        story.recorder, Findings(journal=JOURNAL, data_dirs=written(tmp_path, "a", "b")), workload=GROUP
    )
    assert oracles(told) == ({oracle} if oracle else set())
    assert "group" not in told.undecided


def test_two_members_of_a_generation_own_no_partition_together(story: Story, tmp_path: Path) -> None:
    story.assigned("n")
    story.told("b", 1)
    told = judged(
        story.recorder, Findings(journal=JOURNAL, data_dirs=written(tmp_path, "a", "b")), workload=GROUP
    )
    assert oracles(told) == {"two-owners"}


def test_a_coordinator_that_was_cut_off_may_tell_what_it_knows(story: Story, tmp_path: Path) -> None:
    """Commit c is of the new coordinator; who asks the old one is told b until the fault has ended, and not later."""
    disks = written(tmp_path, "a", "b")
    log = disks[2] / f"{OFFSETS}-0" / f"{0:020d}.log"
    record = encode(Place("g", "orders", 0), Committed(2, -1, "c", 1, -1, TOPIC_ID))
    log.write_bytes(
        log.read_bytes() + build_batch([(1, record.key, record.value, ())], base_offset=2, leader_epoch=1)
    )
    story.goes_on(11.0)
    story.committed("c", 2)
    story.told("b", 1, member="m")
    story.goes_on(25.0)
    story.told("c", 2)
    assert (
        oracles(judged(story.recorder, Findings(journal=JOURNAL, data_dirs=disks), workload=GROUP)) == set()
    )


@pytest.mark.parametrize(
    ("journal", "first", "reason"),
    [
        (None, 0, "without a metadata journal"),
        (Journal(JOURNAL.partitions, internal=()), 0, "nobody knows who coordinated group g"),
        (JOURNAL, 1, "lacks what was at offset 0"),
    ],
)
def test_a_group_of_which_nobody_can_tell_is_not_held(
    story: Story, tmp_path: Path, journal: Journal | None, first: int, reason: str
) -> None:
    story.told("b", 1)
    disks = written(tmp_path, "a", "b", first=first)
    told = judged(story.recorder, Findings(journal=journal, data_dirs=disks), workload=GROUP)
    assert reason in told.undecided


def test_a_group_that_did_nothing_proves_nothing(recorder: Recorder) -> None:
    told = judged(recorder, Findings(journal=JOURNAL), workload=GROUP)
    assert "no member of group g was assigned anything" in told.undecided


def test_damage_in_the_log_of_commits_is_told(tmp_path: Path) -> None:
    (folder,) = [disk / f"{OFFSETS}-0" for disk in written(tmp_path, "a", "b").values()]
    (file,) = folder.glob("*.log")
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with pytest.raises(UnreadableLogError, match="byte 0"):
        commit_places(folder)


CUT = FaultEvidence(0, "cut-off", "leader of orders-0", (1,), began_s=7.0, ended_s=15.0)


@pytest.mark.parametrize(
    ("asked_s", "faults", "epoch"),
    [
        (-9.0, (), -1),
        (5.0, (CUT,), 0),
        (11.0, (), 0),
        (16.0, (), 1),
        (16.0, (CUT,), 0),
        (21.0, (CUT,), 1),
        (25.0, (replace(CUT, ended_s=None),), 0),
        (16.0, (replace(CUT, nodes=(3,)),), 1),
    ],
)
def test_a_deposed_coordinator_may_answer_until_it_has_learnt(
    asked_s: float, faults: tuple[FaultEvidence, ...], epoch: int
) -> None:
    assert JOURNAL.internal is not None
    assert oldest_epoch(JOURNAL.internal, faults, asked_s, slack_s=1.0) == epoch


def test_a_member_s_metadata_are_read_as_librdkafka_writes_them() -> None:
    assert member_of(b"CGMDv2:\x05\x00\x00\x00group\0member-1\0\1") == (5, "member-1")
    assert member_of(b"CGMDv2:\xff\xff\xff\xffg\0\0\1") == (-1, "")
    with pytest.raises(ValueError, match="do not begin with"):
        member_of(b"CGMDv3:")
