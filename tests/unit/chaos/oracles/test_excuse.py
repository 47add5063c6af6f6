"""What injected faults explain, record by record, and what they do not."""

import pytest

from kraft.chaos.oracles.committed import CommittedPrefix
from kraft.chaos.oracles.events import ALL_LOST_POWER
from kraft.chaos.oracles.shadow_log import Batch, ShadowLog
from tests.unit.chaos.oracles.model import KEY, NODES, Model


@pytest.fixture
def model() -> Model:
    return Model(min_isr=1)


def last_one_standing(model: Model) -> None:
    """Three committed records; nodes 2 and 3 have left the ISR."""
    model.committed(3)
    model.change(isr=(1,))


def come_back_as_leader(model: Model, node: int) -> None:
    model.restart(node, epoch=100 + node)
    model.change(leader=node)
    model.replication.became_leader(KEY, node, model.state.leader_epoch, 0)


def test_the_last_member_that_lost_its_tail_is_excused(model: Model) -> None:
    last_one_standing(model)
    model.lose(1, 1)
    come_back_as_leader(model, 1)
    assert model.oracles == []
    assert model.replication.has_excused_loss("orders", 0)
    assert list(model.verdicts.excuses) == [
        "orders-0: batch 1-1 of epoch 0 and 1 more up to 2 is gone: every replica that had to have it"
        " (ISR and ELR: 1) lost it to power loss; leader 1 of epoch 1 goes on without"
    ]
    assert model.replication.partitions[KEY].committed.high_watermark == 1


def test_it_is_excused_once_and_what_is_written_then_counts_again(model: Model) -> None:
    last_one_standing(model)
    model.lose(1, 1)
    come_back_as_leader(model, 1)
    model.append(1, 1, epoch=1, value=b"new")
    model.raise_leader(2, before=1, isr=(1,), epoch=1)
    model.replication.acknowledged(KEY, 1, [b"new"])
    model.cut(1, 1)
    assert model.oracles == ["leader-candidate-completeness", "no-committed-record-lost"]


def test_another_member_that_still_has_it_is_no_excuse(model: Model) -> None:
    model.committed(3)
    model.change(isr=(1, 2))
    model.lose(1, 1)
    assert not model.replication.has_excused_loss("orders", 0)
    come_back_as_leader(model, 1)
    assert "leader-completeness" in model.oracles
    assert not model.verdicts.excuses


def test_all_members_that_lost_it_are_an_excuse(model: Model) -> None:
    model.committed(3)
    model.change(isr=(1, 2))
    model.lose(1, 1)
    model.lose(2, 2)
    come_back_as_leader(model, 1)
    assert model.oracles == ["leader-completeness"]
    assert len(model.verdicts.excuses) == 1, "the last record was lost by both, the middle one by one"


def test_an_eligible_leader_replica_that_still_has_it_is_no_excuse() -> None:
    model = Model(min_isr=2)
    last_one_standing(model)
    assert model.state.elr == (2, 3)
    model.lose(1, 1)
    come_back_as_leader(model, 1)
    assert model.oracles == ["leader-completeness"]
    assert not model.verdicts.excuses


def test_isr_and_elr_that_all_lost_it_are_an_excuse() -> None:
    model = Model(min_isr=2)
    model.committed(3)
    model.change(isr=(1, 2))
    model.change(isr=(1,))
    model.lose(1, 1)
    model.lose(2, 1)
    come_back_as_leader(model, 1)
    assert model.oracles == []
    assert len(model.verdicts.excuses) == 1


def test_what_was_copied_back_is_there_and_its_loss_is_no_excuse(model: Model) -> None:
    model.committed(2)
    model.change(isr=(1, 2))
    model.lose(2, 1)
    model.restart(2, epoch=50)
    model.append(1, 2)
    model.change(isr=(2,))
    model.cut(2, 1)
    model.verdicts.violations.clear()
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 1)
    assert model.oracles == ["leader-completeness"]


def test_a_log_that_is_cut_further_than_the_damage_is_a_loss_of_the_product(model: Model) -> None:
    last_one_standing(model)
    model.lose(1, 2)
    model.restart(1, end=1)
    assert model.oracles == ["no-committed-record-lost"]


def test_a_log_that_is_cut_where_the_damage_is_has_its_excuse(model: Model) -> None:
    last_one_standing(model)
    model.lose(1, 2)
    model.restart(1, end=2)
    assert model.oracles == []


def test_a_killed_process_loses_nothing(model: Model) -> None:
    last_one_standing(model)
    model.running.pop(1)
    model.restart(1, end=2)
    assert model.oracles == ["no-committed-record-lost"]


def test_a_killed_process_that_comes_back_with_everything_is_fine(model: Model) -> None:
    last_one_standing(model)
    model.running.pop(1)
    come_back_as_leader(model, 1)
    assert model.oracles == []


def test_a_truncation_that_a_kill_cut_short_may_show_either_way(model: Model) -> None:
    model.committed(1)
    model.append(1, 2)
    model.replicas.truncated(KEY, 2, 1, 2, done=False)
    model.restart(2, end=2)
    log = model.replication.partitions[KEY].replicas[2]
    assert log.end == 2
    assert [batch.base for batch in log.batches] == [0, 1]
    assert model.oracles == []


def test_rot_in_a_running_log_takes_that_batch_alone(model: Model) -> None:
    model.committed(3)
    data = bytearray(model.disks[2][1])
    data[-1] ^= 1
    model.disks[2][1] = bytes(data)
    model.lose(2, 3, "bit rot", is_running=True)
    log = model.replication.partitions[KEY].replicas[2]
    assert [batch.base for batch in log.lost] == [1]
    assert log.end == 3
    assert model.verdicts.coverage["batch lost to injected damage"] == 1


def test_damage_ends_at_the_first_torn_batch_for_a_process_that_is_gone(model: Model) -> None:
    model.committed(3)
    model.disks[2][1] = model.disks[2][1][:20] + bytes(len(model.disks[2][1]) - 20)
    model.lose(2, 3)
    log = model.replication.partitions[KEY].replicas[2]
    assert [batch.base for batch in log.lost] == [1, 2]
    assert log.end == 1


def test_a_wiped_disk_has_nothing(model: Model) -> None:
    model.committed(2)
    model.lose(2, 0, "wipe")
    log = model.replication.partitions[KEY].replicas[2]
    assert len(log.lost) == 2
    assert log.end == 0


def test_damage_that_takes_nothing_is_none(model: Model) -> None:
    model.committed(2)
    model.lose(2, 2)
    assert model.verdicts.coverage["batch lost to injected damage"] == 0
    model.restart(2)
    assert model.oracles == []


def test_the_checker_is_told_which_record_is_explained(model: Model) -> None:
    model.append(0, *NODES, value=b"a")
    model.append(1, *NODES, value=b"b")
    model.raise_leader(2)
    model.replication.acknowledged(KEY, 1, [b"b"])
    model.change(isr=(1,))
    model.lose(1, 1)
    come_back_as_leader(model, 1)
    model.append(1, 1, epoch=1, value=b"c")
    model.raise_leader(2, before=1, isr=(1, 2), maximal=(1,), epoch=1)
    model.replication.acknowledged(KEY, 1, [b"c"])
    explains = model.replication.explains
    assert explains(KEY, 1, b"b")
    assert not explains(KEY, 1, b"c"), "that one came later, to the same offset"
    assert not explains(KEY, 0, b"a")


def test_a_shadow_that_is_not_aligned_still_finds_its_batches() -> None:
    log = ShadowLog("/data")
    log.replace([], 5, 5)
    assert log.missing([]) == []
    model = Model()
    batches = model.committed(4)
    other = ShadowLog("/data")
    other.replace(batches[2:], 2, 4)
    assert other.missing(batches) == [], "what lies below the log start is not missing"
    assert other.missing([*batches[:2], batches[3]]) == []


@pytest.mark.parametrize("byte", [-1, 8, 0], ids=["value", "length", "offset"])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_bit_that_rots_takes_one_batch_and_no_other(model: Model, byte: int, is_running: bool) -> None:
    model.committed(4)
    if not is_running:
        model.running.pop(2)
    model.rot(2, 1, byte)
    log = model.replication.partitions[KEY].replicas[2]
    assert [batch.base for batch in log.lost] == [1]
    assert log.end == 4
    model.restart(2)
    assert [batch.base for batch in log.batches] == [0, 1, 2, 3], "the rotten one is in the log still"
    assert [batch.base for batch in log.lost] == [1]
    assert model.oracles == []


OFFSET_BIT = 7
"""The byte of a batch whose lowest bit is that of its base offset."""


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_a_batch_whose_base_offset_rots_takes_no_other_one_s_place(model: Model, offset: int) -> None:
    distinct_batches(model)
    model.rot(2, offset, OFFSET_BIT)
    model.restart(2, recovery_point=4)
    log = model.replication.partitions[KEY].replicas[2]
    assert log.batches == model.replication.partitions[KEY].replicas[1].batches
    assert [batch.base for batch in log.lost] == [offset]
    assert model.oracles == []


def test_nor_is_it_an_excuse_for_the_one_that_it_says_to_be(model: Model) -> None:
    distinct_batches(model)
    model.rot(2, 0, OFFSET_BIT)
    del model.disks[2][1]
    model.restart(2, end=4, recovery_point=4)
    assert "durable-records-cut" in model.oracles
    assert "gave up 1 sound batches from offset 1 on" in model.verdicts.violations[0].text


def distinct_batches(model: Model) -> None:
    """Four of them, committed, on all replicas; nobody runs 2."""
    for offset in range(4):
        model.append(offset, *NODES, value=b"%d" % offset)
    model.raise_leader(4)
    model.running.pop(2)


def test_what_lies_behind_rot_is_excused_only_where_it_may_be_taken_for_a_torn_tail(model: Model) -> None:
    last_one_standing(model)
    model.running.pop(1)
    model.rot(1, 1)
    model.restart(1, end=1)
    assert model.oracles == []
    assert [batch.base for batch in model.replication.partitions[KEY].replicas[1].lost] == [1, 2]


def test_a_log_that_is_cut_at_rot_below_its_recovery_point_is_the_product_s_loss(model: Model) -> None:
    model.committed(4)
    model.running.pop(2)
    model.rot(2, 1)
    model.restart(2, end=1, recovery_point=3)
    assert model.oracles == ["durable-records-cut"]
    [text] = [violation.text for violation in model.verdicts.violations]
    assert "gave up 1 sound batches from offset 2" in text, "batch 1 is rotten, batch 3 was never flushed"


def test_power_loss_after_rot_does_not_take_what_lies_between(model: Model) -> None:
    model.committed(4)
    model.rot(2, 0)
    model.lose(2, 3)
    log = model.replication.partitions[KEY].replicas[2]
    assert {batch.base: kind for batch, kind in log.lost.items()} == {0: "bit rot", 3: "power loss"}
    assert log.end == 3


def test_a_leader_that_knows_nothing_of_its_rot_lacks_nothing(model: Model) -> None:
    model.committed(3)
    model.rot(2, 1)
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 3)
    assert model.oracles == []
    assert not model.replication.has_excused_loss("orders", 0)


def test_a_replica_that_was_made_anew_has_lost_nothing(model: Model) -> None:
    batches = model.committed(3)
    model.rot(2, 1)
    model.change(isr=(1, 3), offline_replicas=(2,))
    model.replicas.deleted(2, "/data/2")
    model.replicas.appended(KEY, 2, batches, "/data-2/2")
    model.change(isr=(1, 2, 3), offline_replicas=())
    log = model.replication.partitions[KEY].replicas[2]
    assert (log.directory, log.lost, log.end) == ("/data-2/2", {}, 3)
    assert model.oracles == []


def test_offsets_that_retention_took_may_be_given_again_after_an_excused_loss() -> None:
    committed = CommittedPrefix()
    retained, lost = Batch(0, 2, 0, 1), Batch(2, 4, 0, 2)
    committed.commit([retained, lost], 4, 0)
    assert committed.acknowledge(0, (b"a", b"b")) is None
    assert committed.acknowledge(2, (b"c", b"d")) is None
    committed.retain_from(2)
    assert not committed.explains(1, b"b")
    committed.give_up([lost])
    committed.start_over(0)
    assert (committed.retained_from, committed.high_watermark) == (0, 0)
    assert all(committed.explains(offset, value) for offset, value in enumerate((b"a", b"b", b"c", b"d")))
    assert committed.explains(0, b"read, and never acknowledged")
    committed.commit([Batch(0, 2, 1, 3)], 2, 1)
    assert committed.acknowledge(0, (b"x", b"y")) is None
    assert not committed.explains(0, b"x")


def test_what_retention_took_was_committed_all_the_same_until_another_history_takes_its_place() -> None:
    committed = CommittedPrefix()
    batches = [Batch(offset, offset + 2, 0, offset) for offset in range(0, 8, 2)]
    committed.commit(batches, 8, 0)
    committed.retain_from(2)
    committed.retain_from(6)
    assert committed.between(0, 8) == batches[3:]
    assert committed.ever_between(0, 8) == batches
    assert committed.ever_between(2, 6) == batches[1:3]
    committed.give_up(batches[3:])
    committed.start_over(4)
    other = Batch(4, 7, 1, 9)
    committed.commit([other], 7, 1)
    assert committed.ever_between(0, 8) == [*batches[:2], other]


def test_what_retention_took_and_a_leader_lacks_is_given_up_as_well() -> None:
    committed = CommittedPrefix()
    batches = [Batch(offset, offset + 2, 0, offset) for offset in range(0, 8, 2)]
    committed.commit(batches, 8, 0)
    committed.retain_from(4)
    committed.give_up(batches[1:])
    assert committed.ever_between(0, 8) == batches[:1]


def test_what_is_told_late_of_offsets_that_were_given_again() -> None:
    """Once the records in its place have expired as well, nobody can tell which of both was meant."""
    committed = CommittedPrefix()
    committed.commit([Batch(0, 2, 0, 1), Batch(2, 4, 0, 2)], 4, 0)
    committed.retain_from(4)
    committed.start_over(0)
    assert committed.acknowledge(0, (b"a", b"b")) is None
    assert committed.explains(1, b"b")
    assert committed.acknowledge(1, (b"b", b"c")) is not None
    committed.commit([Batch(0, 2, 1, 3), Batch(2, 5, 1, 4)], 5, 1)
    committed.retain_from(5)
    assert committed.acknowledge(0, (b"x", b"y")) is None
    assert not committed.explains(0, b"x")
    assert committed.acknowledge(2, (b"c", b"d")) is None
    assert committed.explains(2, b"c")


def test_what_retention_took_and_another_leader_commits_again_is_no_loss_to_who_expired_it() -> None:
    committed = CommittedPrefix()
    batches = [Batch(offset, offset + 2, 0, offset) for offset in range(0, 8, 2)]
    committed.commit(batches, 8, 0)
    committed.retain_from(4)
    committed.give_up(batches[2:])
    committed.start_over(0)
    other = Batch(4, 6, 2, 9)
    committed.commit([*batches[:2], other], 6, 2)
    assert committed.never_in(4, committed.batches) == []
    assert committed.never_in(6, committed.batches) == [other]
    assert committed.never_in(5, committed.batches) == []


def test_a_leader_that_begins_where_retention_does_starts_nothing_over() -> None:
    committed = CommittedPrefix()
    committed.commit([Batch(0, 2, 0, 1)], 2, 0)
    committed.retain_from(2)
    committed.start_over(2)
    assert (committed.retained_from, committed.high_watermark) == (2, 2)
    assert not committed.explains(0, b"a")


@pytest.mark.parametrize("last_known", [(1,), ()])
def test_with_nobody_in_isr_and_elr_the_last_known_leader_is_waited_for(
    model: Model, last_known: tuple[int, ...]
) -> None:
    """All came back unclean; one that has nothing any more opens its log before anybody is elected."""
    model.committed(2)
    model.change(leader=-1, isr=(), elr=(), last_known_elr=last_known)
    model.verdicts.violations.clear()
    model.cut(2, 0)
    assert model.oracles == ([] if last_known else ["no-committed-record-lost"])


@pytest.mark.parametrize(
    ("kind", "is_excused"), [("power loss", False), ("wipe", True), ("disk error", True)]
)
def test_where_every_record_is_flushed_no_power_loss_is_an_excuse(kind: str, is_excused: bool) -> None:
    model = Model(min_isr=1, flush_messages=1)
    last_one_standing(model)
    model.lose(1, 1, kind)
    come_back_as_leader(model, 1)
    assert bool(model.verdicts.excuses) is is_excused
    assert ("leader-completeness" in model.oracles) is not is_excused


def test_that_all_lost_power_is_counted_where_something_had_been_acknowledged() -> None:
    for flush_messages, acknowledges, times in ((1, True, 1), (1, False, 0), (2, True, 0)):
        model = Model(flush_messages=flush_messages)
        model.committed(2)
        if acknowledges:
            model.replication.acknowledged(KEY, 0, [b"v"])
        for node in (1, 2):
            model.lose(node, 2)
        assert not model.verdicts.coverage[ALL_LOST_POWER]
        model.lose(3, 2)
        assert model.verdicts.coverage[ALL_LOST_POWER] == times
        assert model.oracles == []
