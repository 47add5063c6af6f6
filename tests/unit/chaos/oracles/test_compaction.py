"""What cleaners may do: records of a partition of three replicas, cleaned on one of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraft.chaos.keyed import keyed_value
from kraft.chaos.oracles.compaction import Cleaning
from kraft.chaos.oracles.convergence import Convergence
from kraft.chaos.oracles.shadow_log import Batch
from partitions.log.cleaner.raw_records import RawRecord, raw_records
from partitions.log.cleaner.rewrite import batch_with
from partitions.records.batch import records_body
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.header import DELETE_HORIZON_BIT, parse_header
from partitions.records.markers import build_marker
from quorum.metadata.records import RECOVERING
from tests.unit.chaos.oracles.model import KEY, NODES, Model

NOW_MS, RETENTION_MS = 10_000, 1_000
Records = Sequence[tuple[bytes, bytes | None]]


def segment(base: int, records: Records, *, kept: Sequence[int] | None = None) -> bytes:
    """A batch; of a cleaned one only the records at `kept` are there, and it still covers its offsets."""
    batch = bytearray(
        build_batch([(0, key, value, ()) for key, value in records], base_offset=base, leader_epoch=0)
    )
    if kept is None:
        return bytes(batch)
    body, records = opened(batch)
    chosen = [record for record in records if record.offset_delta in kept]
    return batch_with(parse_header(batch), body, chosen, new_horizon_ms=None)


def opened(batch: bytes | bytearray) -> tuple[bytes, list[RawRecord]]:
    """A batch's records, and where each is in them."""
    header = parse_header(batch)
    body = records_body(batch, 0, header, max_decompressed_bytes=1 << 20)
    return body, list(raw_records(body, header.record_count))


def with_horizon(data: bytes, horizon_ms: int) -> bytes:
    """The batch with a delete horizon."""
    body, records = opened(data)
    found = batch_with(parse_header(data), body, records, new_horizon_ms=horizon_ms)
    assert parse_header(found).attributes & DELETE_HORIZON_BIT
    return found


class CompactedModel(Model):
    def write(self, data: bytes, *nodes: int) -> Batch:
        header = parse_header(data)
        batch = Batch(header.base_offset, header.next_offset, 0, header.crc)
        for node in nodes:
            self.disks[node].append(data)
            self.replicas.appended(KEY, node, [batch], f"/data/{node}")
        return batch

    def clean(self, new: bytes, *, node: int = 1, began_ms: int = NOW_MS, old: int | None = None) -> None:
        """Puts `new` in the place of the first `old` batches of a replica, by default of all but the last."""
        count = len(self.disks[node]) - 1 if old is None else old
        before = self.disks[node]
        cleaning = Cleaning(KEY, node, before[:count], new, [b"".join(before)], began_ms, RETENTION_MS)
        self.replicas.cleaned(cleaning)
        self.disks[node] = [*([new] if new else []), *before[count:]]

    def reopen(self, node: int, end: int) -> None:
        """A process starts after one that ended in the middle of something."""
        self.replication.partitions[KEY].replicas[node].uncertain = True
        self.replicas.opened(KEY, node, f"/data/{node}", 0, end, lambda: [b"".join(self.disks[node])], end)


@pytest.fixture
def model() -> CompactedModel:
    """Offsets 0 and 1 have keys a and b, 2 has a again, 3 is of another key."""
    model = CompactedModel()
    for data in (FIRST, SECOND, THIRD):
        model.write(data, *NODES)
    model.raise_leader(4)
    return model


FIRST = segment(0, [(b"a", b"1"), (b"b", b"2")])
SECOND = segment(2, [(b"a", b"3")])
THIRD = segment(3, [(b"c", b"4")])
WITHOUT_OLD_A = segment(0, [(b"a", b"1"), (b"b", b"2")], kept=[1])


def test_what_a_later_record_replaces_may_go(model: CompactedModel) -> None:
    model.clean(WITHOUT_OLD_A + SECOND)
    model.reopen(1, 4)
    assert model.oracles == []
    assert model.verdicts.coverage["record compacted away"] == 1
    assert model.replication.partitions[KEY].replicas[1].batches[0].crc == parse_header(FIRST).crc


def test_the_last_record_of_a_key_stays(model: CompactedModel) -> None:
    model.clean(FIRST)
    assert model.oracles == ["newest-of-key-kept"]


def test_what_stays_is_as_it_was(model: CompactedModel) -> None:
    model.clean(FIRST + segment(2, [(b"a", b"forged")]))
    assert model.oracles == ["newest-of-key-kept"]


def test_nothing_comes_from_nowhere(model: CompactedModel) -> None:
    model.clean(segment(0, [(b"a", b"1"), (b"b", b"2")]) + SECOND + segment(3, [(b"d", b"5")]))
    assert model.oracles == ["newest-of-key-kept"]


def test_nothing_goes_for_the_sake_of_what_is_not_committed(model: CompactedModel) -> None:
    model.write(segment(4, [(b"b", b"5")]), 1)
    model.clean(segment(0, [(b"a", b"1"), (b"b", b"2")], kept=[0]) + SECOND, old=2)
    assert model.oracles == ["cleaned-below-high-watermark"]


def test_what_is_not_committed_is_not_touched(model: CompactedModel) -> None:
    model.write(segment(4, [(b"d", b"5")]), 1)
    model.write(segment(5, [(b"d", b"6")]), 1)
    model.clean(b"".join(model.disks[1][:4]), old=4)
    assert model.oracles == ["cleaned-below-high-watermark"]


def tombstone(model: CompactedModel, horizon_ms: int | None) -> bytes:
    data = segment(4, [(b"c", None)])
    data = data if horizon_ms is None else with_horizon(data, horizon_ms)
    model.write(data, *NODES)
    model.write(segment(5, [(b"d", b"6")]), *NODES)
    model.raise_leader(6, before=4)
    return b"".join(model.disks[1][:3])


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS + 1])
def test_a_tombstone_stays_until_its_horizon(model: CompactedModel, horizon_ms: int | None) -> None:
    model.clean(tombstone(model, horizon_ms))
    assert model.oracles == ["tombstone-kept"]


def test_and_goes_then(model: CompactedModel) -> None:
    model.clean(tombstone(model, NOW_MS))
    assert model.oracles == []
    [(offset, value)] = model.replication.partitions[KEY].compaction.lapsed.items()
    assert (offset, value) == (4, keyed_value(b"c", b"", tombstone=True))


@pytest.mark.parametrize(
    ("given_ms", "oracles"), [(RETENTION_MS, []), (RETENTION_MS - 1, ["tombstone-kept"])]
)
def test_it_is_given_the_time_that_the_topic_says(
    model: CompactedModel, given_ms: int, oracles: list[str]
) -> None:
    kept = tombstone(model, None)
    model.clean(kept + with_horizon(segment(4, [(b"c", None)]), NOW_MS + given_ms))
    assert model.oracles == oracles


# -- what other oracles make of it


def test_a_follower_has_a_hole_where_its_leader_has_one(model: CompactedModel) -> None:
    model.clean(FIRST[:0] + segment(0, [(b"a", b"1"), (b"b", b"2")], kept=[1]) + SECOND)
    second, third = parse_header(SECOND), parse_header(THIRD)
    model.append(4, 1, value=b"x")
    log = model.replication.partitions[KEY].replicas[3]
    model.replicas.restarted(KEY, 3, 0, done=True)
    model.verdicts.violations.clear()
    cleaned = parse_header(WITHOUT_OLD_A)
    for header in (cleaned, second, third):
        batch = Batch(header.base_offset, header.next_offset, 0, header.crc)
        model.replicas.appended(KEY, 3, [batch], "/data/3")
    model.raise_follower(3, 4)
    assert model.oracles == []
    assert log.batches[0].crc == parse_header(FIRST).crc, "it stands for what it was"


def test_a_batch_that_was_cleaned_away_is_not_missed_and_one_that_was_not_is(model: CompactedModel) -> None:
    model.write(segment(4, [(b"b", b"5")]), *NODES)
    model.raise_leader(5, before=4)
    model.clean(SECOND, old=2)
    model.reopen(1, 5)
    model.replication.became_leader(KEY, 1, 1, 5)
    assert model.oracles == []
    third = model.replication.partitions[KEY].committed.batches[2]
    assert third.base == 3
    for node, gone in ((2, [FIRST]), (3, [FIRST, THIRD])):
        left = [data for data in model.disks[node] if data not in gone]
        model.replicas.restarted(KEY, node, 0, done=True)
        model.verdicts.violations.clear()
        for data in left:
            header = parse_header(data)
            batch = Batch(header.base_offset, header.next_offset, 0, header.crc)
            model.replicas.appended(KEY, node, [batch], f"/data/{node}")
        model.raise_follower(node, 5)
        assert model.oracles == ([] if node == 2 else ["log-matching"])


@pytest.mark.parametrize(
    ("lacks", "oracles"),
    [([], []), ([SECOND], ["log-matching"])],
    ids=["what is compacted away is a hole", "what is not is missed"],
)
def test_a_copy_of_a_log_that_another_replicas_retention_was_ahead_of(
    model: CompactedModel, lacks: list[bytes], oracles: list[str]
) -> None:
    """Replica 2 deletes what is below 3 and is then removed; 3 is made from 1, which begins at 0 still."""
    model.write(segment(4, [(b"b", b"5")]), *NODES)
    model.raise_leader(5, before=4)
    model.clean(SECOND, old=2)
    model.replicas.start_raised(KEY, 2, 3, by_retention=True)
    model.replicas.restarted(KEY, 3, 0, done=True)
    model.disks[3].clear()
    model.verdicts.violations.clear()
    for data in [data for data in model.disks[1] if data not in lacks]:
        model.write(data, 3)
    model.change(replicas=(1, 3), isr=(1, 3))
    model.replicas.deleted(2, "/data/2")
    Convergence(
        model.verdicts,
        model.metadata,
        model.replication,
        lambda node, directory: [b"".join(model.disks[node])],
    ).judge({})
    assert model.oracles == oracles


@pytest.mark.parametrize(
    ("lacks", "oracles"),
    [
        ([], []),
        ([THIRD], ["high-watermark-bounded", "leader-candidate-completeness", "strong-isr"]),
    ],
    ids=["what is compacted away is a hole", "what is not is missed"],
)
def test_a_loss_that_was_excused_comes_back_with_its_holes(lacks: list[bytes], oracles: list[str]) -> None:
    """Replica 1, with a cleaned log, is elected after 3, that had nothing: both others copy what it has."""
    model = overruled_by_an_empty_log()
    model.cut(2, 0)
    elect_uncleanly(model, 1, end=5)
    for data in [data for data in model.disks[1] if data not in lacks]:
        model.write(data, 2, 3)
    model.change(isr=NODES)
    model.raise_leader(5, epoch=2)
    assert model.oracles == oracles
    replicas = model.replication.partitions[KEY].replicas
    assert [batch.base for batch in replicas[2].absent] == [0]
    assert [batch.base for batch in replicas[3].absent] == [0]


@pytest.mark.parametrize("how", ["truncated", "emptied"])
@pytest.mark.parametrize(
    ("end", "bases"),
    [(5, [0, 2, 3, 4]), (3, [0, 2]), (0, [])],
    ids=["nothing went yet", "a part went", "all went"],
)
def test_what_a_killed_truncation_leaves_has_its_holes(how: str, end: int, bases: list[int]) -> None:
    model = overruled_by_an_empty_log()
    log = model.replication.partitions[KEY].replicas[1]
    assert [batch.base for batch in log.absent] == [0]
    if how == "truncated":
        model.replicas.truncated(KEY, 1, 0, 5, done=False)
    else:
        model.replicas.restarted(KEY, 1, 0, done=False)
    assert log.batches == []
    model.restart(1, end=end)
    assert [batch.base for batch in log.batches] == bases
    assert [batch.base for batch in log.absent] == bases[:1]
    assert model.oracles == []


def overruled_by_an_empty_log() -> CompactedModel:
    """Of what is committed replica 1 has cleaned the first batch away, when 3, which has nothing, is elected."""
    model = CompactedModel(unclean=True)
    model.change(isr=(1, 2))
    for data in (FIRST, SECOND, THIRD, segment(4, [(b"b", b"5")])):
        model.write(data, 1, 2)
    model.raise_leader(5, isr=(1, 2))
    model.clean(SECOND, old=2)
    elect_uncleanly(model, 3, end=0)
    assert len(model.replication.partitions[KEY].committed.excused) == 4
    return model


def elect_uncleanly(model: CompactedModel, node: int, end: int) -> None:
    model.change(isr=(node,), leader=node, recovering=RECOVERING)
    model.replication.became_leader(KEY, node, model.state.leader_epoch, end)


def test_a_wipe_takes_what_was_cleaned_away_too(model: CompactedModel) -> None:
    """The last of the ISR: the log begins with a hole, and no file of it is left."""
    alone_with_a_hole(model, hole=FIRST)
    log = model.replication.partitions[KEY].replicas[1]
    model.running.pop(1)
    model.replicas.damaged(1, "data wipe", lambda directory: [], is_running=False)
    assert [batch.base for batch in log.lost] == [0, 2, 3, 4]
    assert (log.batches, log.end, log.absent) == ([], 0, {})
    model.disks[1].clear()
    lead_again(model)
    assert model.oracles == []
    assert len(model.verdicts.excuses) == 1


def test_a_killed_process_that_forgets_what_was_cleaned_away_has_no_excuse(model: CompactedModel) -> None:
    alone_with_a_hole(model, hole=FIRST)
    model.running.pop(1)
    model.disks[1].clear()
    model.reopen(1, 0)
    assert model.oracles == ["no-committed-record-lost"]
    [text] = [violation.text for violation in model.verdicts.violations]
    assert text.endswith("has the committed batch 0-1 of epoch 0 and 3 more up to 5")


@pytest.mark.parametrize(
    ("end", "oracles"),
    [(3, []), (2, []), (0, ["no-committed-record-lost"])],
    ids=["the segment begins behind the hole", "the hole is in the segment", "what is before the hole goes"],
)
def test_a_hole_before_the_torn_batch_may_go_with_it(
    model: CompactedModel, end: int, oracles: list[str]
) -> None:
    """A follower's log has the hole in the segment that it writes, and the power loss takes what follows it."""
    alone_with_a_hole(model, hole=SECOND)
    model.lose(1, 1)
    model.restart(1, end=end)
    assert model.oracles == oracles
    log = model.replication.partitions[KEY].replicas[1]
    assert [batch.base for batch in log.batches] == [base for base in (0, 2) if base < end]
    lead_again(model, end)
    assert set(model.oracles) == {*oracles, *(["leader-completeness"] if oracles else [])}


@pytest.mark.parametrize("value", [b"1", b"9"], ids=["higher CRC", "lower CRC"])
def test_a_batch_whose_base_offset_rots_takes_no_other_one_s_place(value: bytes) -> None:
    """Offset 3 says to be offset 2, in a log that was cleaned in front of it; the file has both, and their order is
    not that of their checksums."""
    model = CompactedModel()
    for data in (FIRST, SECOND, segment(3, [(b"c", value)])):
        model.write(data, *NODES)
    model.raise_leader(4)
    model.clean(WITHOUT_OLD_A + SECOND, node=2)
    model.running.pop(2)
    model.rot(2, -1, 7)
    model.reopen(2, 4)
    log = model.replication.partitions[KEY].replicas[2]
    assert log.batches == model.replication.partitions[KEY].replicas[1].batches
    assert [batch.base for batch in log.lost] == [3]
    assert model.oracles == []


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_a_cleaned_batch_whose_base_offset_rots_is_known_again(model: CompactedModel, offset: int) -> None:
    """Its checksum is that of what the cleaner wrote; it says to reach into the next, to be there, to be behind all."""
    model.clean(WITHOUT_OLD_A, node=2, old=1)
    model.running.pop(2)
    data = bytearray(model.disks[2][0])
    data[7] = offset
    model.disks[2][0] = bytes(data)
    model.replicas.damaged(2, "bit rot", lambda directory: [b"".join(model.disks[2])], is_running=False)
    model.reopen(2, 4)
    log = model.replication.partitions[KEY].replicas[2]
    assert log.batches == model.replication.partitions[KEY].replicas[1].batches
    assert [batch.base for batch in log.lost] == [0]
    assert model.oracles == []


def alone_with_a_hole(model: CompactedModel, hole: bytes) -> None:
    """Replica 1 is the only one in sync or eligible, all is committed, and of one batch nothing is left in its log."""
    model.write(segment(4, [(b"a", b"5"), (b"b", b"6")]), *NODES)
    model.raise_leader(6, before=4)
    log = model.replication.partitions[KEY].replicas[1]
    left = [data for data in model.disks[1] if data != hole]
    batch = next(batch for batch in log.batches if batch.base == parse_header(hole).base_offset)
    model.clean(b"".join(model.disks[1][: model.disks[1].index(hole)]), old=model.disks[1].index(hole) + 1)
    model.disks[1] = left
    assert list(log.absent) == [batch]
    model.change(isr=(1,), elr=())
    model.verdicts.violations.clear()


def lead_again(model: CompactedModel, end: int = 0) -> None:
    model.restart(1, epoch=50, end=end)
    model.change(leader=1)
    model.replication.became_leader(KEY, 1, model.state.leader_epoch, 0)


# -- transactions


PRODUCER = 7
MARKER_AT = 6


def in_transaction(base: int, key: bytes, value: bytes) -> bytes:
    return build_batch(
        [(0, key, value, ())],
        base_offset=base,
        leader_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
    )


def marker(base: int, kind: ControlType) -> bytes:
    return build_marker(PRODUCER, 0, kind, coordinator_epoch=0, timestamp=0, base_offset=base, leader_epoch=0)


def transacted(
    model: CompactedModel, kind: ControlType | None, *, horizon_ms: int | None = None
) -> list[bytes]:
    """After the model's records: c (offset 3) is written again in a transaction (4), which is ended at 6, if `kind`
    is given; 5 and 7 are of other keys."""
    end = [] if kind is None else [marker(MARKER_AT, kind)]
    if horizon_ms is not None:
        end = [with_horizon(data, horizon_ms) for data in end]
    more = [in_transaction(4, b"c", b"5"), segment(5, [(b"e", b"6")]), *end, segment(7, [(b"f", b"7")])]
    for data in more:
        model.write(data, *NODES)
    model.raise_leader(8, before=4)
    return [FIRST, SECOND, THIRD, *more[:-1]]


def without(batches: list[bytes], *gone: bytes) -> bytes:
    return b"".join(data for data in batches if data not in gone)


def test_what_was_aborted_may_go_and_replaces_nothing(model: CompactedModel) -> None:
    batches = transacted(model, ControlType.ABORT)
    model.clean(without(batches, batches[3]))
    assert model.oracles == []


def test_nothing_goes_for_the_sake_of_what_was_aborted(model: CompactedModel) -> None:
    batches = transacted(model, ControlType.ABORT)
    model.clean(without(batches, THIRD))
    assert model.oracles == ["newest-of-key-kept"]


def test_what_was_committed_in_a_transaction_replaces_what_was_before(model: CompactedModel) -> None:
    batches = transacted(model, ControlType.COMMIT)
    model.clean(without(batches, THIRD))
    assert model.oracles == []


def test_what_was_committed_in_a_transaction_stays(model: CompactedModel) -> None:
    batches = transacted(model, ControlType.COMMIT)
    model.clean(without(batches, batches[3]))
    assert model.oracles == ["newest-of-key-kept"]


def test_nothing_goes_for_the_sake_of_a_transaction_that_is_open(model: CompactedModel) -> None:
    batches = transacted(model, None)
    model.clean(without(batches, THIRD))
    assert model.oracles == ["cleaned-below-high-watermark"]


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS + 1])
def test_a_marker_stays_until_its_horizon(model: CompactedModel, horizon_ms: int | None) -> None:
    batches = transacted(model, ControlType.ABORT, horizon_ms=horizon_ms)
    model.clean(without(batches, batches[3], batches[5]))
    assert model.oracles == ["marker-kept"]


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_stays_as_long_as_its_transaction_has_records(
    model: CompactedModel, kind: ControlType
) -> None:
    batches = transacted(model, kind, horizon_ms=NOW_MS)
    model.clean(without(batches, batches[5]))
    assert model.oracles == ["marker-kept"]


def test_a_marker_whose_transaction_is_gone_goes_at_its_horizon(model: CompactedModel) -> None:
    batches = transacted(model, ControlType.ABORT, horizon_ms=NOW_MS)
    model.clean(without(batches, batches[3], batches[5]))
    assert model.oracles == []
