"""The oracles of replicated data: each fires on the story it is for, and not on the one next to it."""

import pytest

from partitions.log.config_values import LONG_MAX
from quorum.metadata.records import RegisterBroker
from tests.unit.chaos.oracles.model import KEY, NODES, TOPIC_ID, Model


@pytest.fixture
def model() -> Model:
    return Model()


def test_nothing_is_wrong_with_a_record_that_everybody_has(model: Model) -> None:
    model.committed(3)
    model.raise_follower(2, 3)
    model.replication.acknowledged(KEY, 1, [b"v"])
    assert model.oracles == []
    assert model.replication.partitions[KEY].committed.high_watermark == 3


# -- strong-isr


def test_strong_isr_wants_every_member_of_the_committed_isr(model: Model) -> None:
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    assert "strong-isr" in model.oracles


def test_strong_isr_does_not_want_who_left_the_isr(model: Model) -> None:
    model.append(0, 1, 2)
    model.change(isr=(1, 2))
    model.raise_leader(1, isr=(1, 2))
    assert model.oracles == []


def test_strong_isr_wants_min_insync_replicas(model: Model) -> None:
    model.append(0, 1)
    model.change(isr=(1,))
    model.raise_leader(1, isr=(1,))
    assert model.oracles == ["leader-candidate-completeness", "strong-isr"]


def test_strong_isr_takes_the_isr_that_the_leader_knows_for_its_size(model: Model) -> None:
    """A follower was fenced a moment ago: its leader does not know yet, and both have the record."""
    model.append(0, 1, 2)
    model.change(isr=(1, 2))
    model.change(isr=(1,))
    model.raise_leader(1, isr=(1, 2))
    assert model.oracles == []


def test_strong_isr_counts_what_a_member_lost_to_damage_as_had(model: Model) -> None:
    model.append(0, *NODES)
    model.lose(3, 0)
    model.raise_leader(1)
    assert model.oracles == []


def test_strong_isr_does_not_count_what_a_member_gave_up_by_itself(model: Model) -> None:
    model.append(0, *NODES)
    model.cut(3, 0)
    model.raise_leader(1)
    assert "strong-isr" in model.oracles


# -- high-watermark-bounded


def test_high_watermark_is_bounded_by_the_member_that_is_about_to_join(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2), maximal=NODES)
    assert model.oracles == ["high-watermark-bounded"]


def test_high_watermark_is_not_bounded_by_who_is_not_joining(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2), maximal=(1, 2))
    assert model.oracles == []


@pytest.mark.parametrize("had", [False, True])
@pytest.mark.parametrize("is_rotten", [False, True])
def test_high_watermark_is_not_bounded_by_who_had_it_in_a_log_that_it_made_anew(
    model: Model, had: bool, is_rotten: bool
) -> None:
    """Its last fetch reaches a leader that does not know yet that it left the ISR for its damage (seed 445)."""
    model.append(0, *NODES) if had else model.append(0, 1, 2)
    if had and is_rotten:
        model.rot(3, 0)
    model.change(isr=(1, 2))
    model.replicas.deleted(3, "/data/3")
    model.raise_leader(1)
    assert model.oracles == ([] if had else ["high-watermark-bounded"])


def test_high_watermark_is_bounded_by_a_candidate_that_made_its_log_anew(model: Model) -> None:
    model.append(0, *NODES)
    model.replicas.deleted(3, "/data/3")
    model.raise_leader(1)
    assert "high-watermark-bounded" in model.oracles


def test_high_watermark_is_not_bounded_by_who_was_moved_away(model: Model) -> None:
    """The leader has not heard yet that it counts no longer; it may have removed its log."""
    model.change(isr=(1, 2), replicas=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=NODES, maximal=NODES)
    assert model.oracles == []


def test_high_watermark_of_a_replica_is_bounded_by_its_own_log(model: Model) -> None:
    model.committed(2)
    model.cut(3, 1)
    model.verdicts.violations.clear()
    model.raise_follower(3, 2, before=1)
    assert "high-watermark-bounded" in model.oracles


def test_high_watermark_of_a_follower_is_bounded_by_what_a_leader_committed(model: Model) -> None:
    model.append(0, *NODES)
    model.raise_follower(2, 1)
    assert model.oracles == ["high-watermark-bounded"]


def test_high_watermark_of_a_follower_may_be_what_a_leader_committed(model: Model) -> None:
    model.committed(1)
    model.raise_follower(2, 1)
    assert model.oracles == []


# -- high-watermark-monotonic


def test_high_watermark_never_goes_back_in_an_epoch(model: Model) -> None:
    model.committed(2)
    model.raise_leader(1, before=2)
    assert model.oracles == ["high-watermark-monotonic"]


def test_high_watermark_never_goes_back_for_a_consumer_of_one_epoch(model: Model) -> None:
    model.committed(2)
    model.replication.consumer_saw(KEY, 1, 0, 2)
    assert model.oracles == []
    model.replication.consumer_saw(KEY, 1, 0, 1)
    assert model.oracles == ["high-watermark-monotonic"]


def test_high_watermark_of_a_leader_that_leads_its_old_epoch_again_is_not_lower(model: Model) -> None:
    model.committed(2)
    model.restart(1)
    model.replication.became_leader(KEY, 1, 0, 1)
    assert model.oracles == ["high-watermark-monotonic"]


def test_high_watermark_of_another_epoch_may_begin_lower(model: Model) -> None:
    model.committed(2)
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 1)
    model.raise_leader(2, node=2, before=1, epoch=1)
    assert model.oracles == []


# -- leader-completeness, no-committed-record-lost


def test_leader_completeness_wants_every_committed_batch(model: Model) -> None:
    model.change(isr=(1, 2))
    for offset in (0, 1):
        model.append(offset, 1, 2)
    model.raise_leader(2, isr=(1, 2))
    model.append(0, 3)
    model.change(isr=(1, 2, 3), leader=3)
    model.verdicts.violations.clear()
    model.replication.became_leader(KEY, 3, 1, 0)
    assert model.oracles == ["leader-completeness"]


def test_leader_completeness_of_an_acknowledged_record_is_its_loss_too(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    model.replication.acknowledged(KEY, 0, [b"v"])
    model.change(isr=(1, 2, 3), leader=3)
    model.verdicts.violations.clear()
    model.replication.became_leader(KEY, 3, 1, 0)
    assert model.oracles == ["leader-completeness", "no-committed-record-lost"]


def test_leader_completeness_does_not_want_what_was_never_committed(model: Model) -> None:
    model.committed(1)
    model.append(1, 1)
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 1)
    assert model.oracles == []


def test_leader_completeness_does_not_want_what_a_later_leader_committed(model: Model) -> None:
    """Node 2 hears late that it led epoch 1; meanwhile node 3 leads epoch 2 and has committed."""
    model.committed(1)
    model.change(leader=2)
    model.change(leader=3, isr=(1, 3))
    model.replication.became_leader(KEY, 3, 2, 1)
    model.append(1, 1, 3, epoch=2)
    model.raise_leader(2, node=3, before=1, isr=(1, 3), epoch=2)
    model.replication.became_leader(KEY, 2, 1, 1)
    assert model.oracles == []


def test_an_unclean_leader_may_lack_records_where_that_is_allowed() -> None:
    model = Model(unclean=True)
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    model.change(isr=(3,), leader=3, recovering=1)
    model.replication.became_leader(KEY, 3, 1, 0)
    assert "leader-completeness" not in model.oracles
    assert len(model.verdicts.excuses) == 1


def test_an_unclean_election_that_is_not_allowed_is_a_violation(model: Model) -> None:
    model.change(isr=(1, 2))
    model.change(isr=(3,), leader=3, recovering=1)
    assert model.oracles == ["leader-completeness"]


def test_an_acknowledged_record_has_to_be_committed(model: Model) -> None:
    model.append(0, 1)
    model.replication.acknowledged(KEY, 0, [b"v"])
    assert model.oracles == ["no-committed-record-lost"]


def test_an_acknowledged_record_has_to_be_committed_where_the_client_was_told(model: Model) -> None:
    model.committed(3)
    model.replication.acknowledged(KEY, 1, [b"v", b"w"])
    assert model.oracles == ["no-committed-record-lost"]


def test_an_acknowledged_record_may_be_gone_with_its_topic(model: Model) -> None:
    model.append(0, 1)
    model.replication.topic_gone(TOPIC_ID)
    model.replication.acknowledged(KEY, 0, [b"v"])
    assert model.oracles == []


def test_a_record_that_no_member_has_any_more_is_lost() -> None:
    model = Model(min_isr=1)
    model.committed(1)
    model.change(isr=(1,))
    model.running.pop(1)
    model.cut(1, 0)
    assert model.oracles == ["no-committed-record-lost"]


# -- leader-candidate-completeness


def test_an_eligible_leader_replica_has_what_is_committed(model: Model) -> None:
    model.committed(1)
    model.change(isr=(1, 2))
    model.change(isr=(1,))
    model.append(1, 1)
    model.raise_leader(2, before=1, isr=(1,))
    assert model.oracles == ["leader-candidate-completeness", "strong-isr"]
    assert "2 of ISR and ELR (1, 2) lacks batch 1-1" in str(model.verdicts.violations)


def test_an_eligible_leader_replica_keeps_what_is_committed(model: Model) -> None:
    model.committed(2)
    model.change(isr=(1, 2))
    model.change(isr=(1,))
    model.cut(2, 1)
    assert model.oracles == ["leader-candidate-completeness"]


def test_an_eligible_leader_replica_counts_once_it_has_registered(model: Model) -> None:
    model.committed(2)
    model.change(isr=(1,))
    model.lose(2, 1)
    model.restart(2)
    model.fence(*NODES)
    model.change(isr=(), leader=-1)
    assert model.oracles == []
    model.unfence(1)
    model.restart(2, epoch=50)
    registration = RegisterBroker(2, bytes(16), (), None, (), previous_broker_epoch=2)
    model.change(registration, isr=(1,), leader=1)
    assert model.oracles == ["leader-candidate-completeness"]


def test_a_member_that_truncates_what_is_committed_is_no_candidate(model: Model) -> None:
    model.committed(2)
    model.cut(2, 1)
    assert model.oracles == ["leader-candidate-completeness"]


def test_a_member_may_truncate_what_is_not_committed(model: Model) -> None:
    model.committed(1)
    model.append(1, 1, 2)
    model.cut(2, 1)
    assert model.oracles == []


def test_who_is_no_member_may_truncate_what_is_committed(model: Model) -> None:
    model.committed(2)
    model.change(isr=(1, 3))
    model.cut(2, 1)
    assert model.oracles == []


def test_a_member_under_another_registration_is_no_candidate_anyway(model: Model) -> None:
    model.committed(2)
    model.running[2] = 77
    model.cut(2, 1)
    assert model.oracles == []


def test_who_joins_the_isr_needs_what_is_committed(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    model.change(isr=NODES)
    assert model.oracles == ["leader-candidate-completeness"]


def test_who_joins_the_isr_with_all_of_it_is_welcome(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    model.append(0, 3)
    model.change(isr=NODES)
    assert model.oracles == []


def test_who_joins_the_isr_needs_the_very_batches(model: Model) -> None:
    """Its log is long enough; at the committed offset it holds what a deposed leader wrote."""
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    model.append(0, 3, value=b"other")
    model.change(isr=NODES)
    assert model.oracles == ["leader-candidate-completeness"]


# -- log-matching, consistent-read


def test_logs_match_up_to_the_lower_high_watermark(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.append(0, 3, value=b"other")
    model.raise_leader(1, isr=(1, 2))
    model.raise_follower(3, 1)
    assert model.oracles == ["log-matching"]


def test_logs_need_not_match_above_the_high_watermark(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, *NODES)
    model.append(1, 1, 2)
    model.append(1, 3, value=b"other")
    model.raise_leader(2, isr=(1, 2))
    model.raise_follower(3, 1)
    assert model.oracles == []


def test_a_hole_below_the_high_watermark_does_not_match(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.append(1, *NODES)
    model.raise_leader(2, isr=(1, 2))
    model.raise_follower(3, 2)
    assert model.oracles == ["log-matching"]


def test_the_first_value_committed_at_an_offset_stays(model: Model) -> None:
    model.change(isr=(1, 2))
    model.append(0, 1, 2)
    model.raise_leader(1, isr=(1, 2))
    model.append(0, 3, value=b"other")
    model.raise_leader(1, node=3, epoch=1)
    assert model.oracles == ["consistent-read", "log-matching"]


def test_a_leader_of_another_epoch_shows_the_same_value(model: Model) -> None:
    model.committed(1)
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 0)
    model.raise_leader(1, node=2, epoch=1)
    assert model.oracles == []


# -- one-leader-per-epoch


def test_one_leader_per_epoch(model: Model) -> None:
    model.replication.became_leader(KEY, 2, 0, 0)
    assert model.oracles == ["one-leader-per-epoch"]


def test_one_leader_may_lead_its_epoch_again(model: Model) -> None:
    model.restart(1)
    model.replication.became_leader(KEY, 1, 0, 0)
    assert model.oracles == []


def test_who_leads_is_whom_the_quorum_chose(model: Model) -> None:
    model.change(leader=2)
    model.replication.became_leader(KEY, 3, 1, 0)
    assert model.oracles == ["one-leader-per-epoch"]


# -- retention


def test_retention_takes_what_is_committed(model: Model) -> None:
    model.committed(3)
    model.replicas.start_raised(KEY, 1, 2, by_retention=True)
    model.replicas.start_raised(KEY, 2, 2, by_retention=False)
    model.change(leader=2)
    model.replication.became_leader(KEY, 2, 1, 3)
    assert model.oracles == []
    assert model.replication.partitions[KEY].committed.retained_from == 2


def test_retention_never_takes_what_is_not_committed(model: Model) -> None:
    model.committed(1)
    model.append(1, *NODES)
    model.replicas.start_raised(KEY, 1, 2, by_retention=True)
    assert model.oracles == ["no-committed-record-lost"]


def test_a_log_start_that_nobody_has_is_not_retention(model: Model) -> None:
    model.committed(2)
    model.replicas.start_raised(KEY, 2, 1, by_retention=False)
    assert model.oracles == ["leader-candidate-completeness"]


def test_a_log_that_is_emptied_up_to_where_retention_was_is_no_loss(model: Model) -> None:
    model.committed(3)
    model.replicas.start_raised(KEY, 1, 3, by_retention=True)
    model.replicas.restarted(KEY, 2, 3, done=True)
    assert model.oracles == []


def test_a_log_that_is_emptied_at_its_start_is_a_loss(model: Model) -> None:
    model.committed(3)
    model.replicas.restarted(KEY, 2, 0, done=True)
    assert model.oracles == ["leader-candidate-completeness"]


def test_a_log_that_is_deleted_under_a_living_topic_is_a_loss(model: Model) -> None:
    model.committed(1)
    model.replicas.deleted(2, "/data/2")
    assert model.oracles == ["leader-candidate-completeness"]


def test_an_acknowledgement_may_be_of_the_topic_that_had_the_name_before(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.metadata, "name", lambda key: f"orders-{key[1]}")
    before = (bytes(16), KEY[1])
    for key in (before, KEY):
        model.replication.model(key)
    model.replication.acknowledged(KEY, 5, (b"x",))
    assert model.oracles == ["no-committed-record-lost"]
    model.replication.topic_gone(before[0])
    model.replication.acknowledged(KEY, 6, (b"y",))
    assert model.oracles == ["no-committed-record-lost"]


# ---- counted-before-flushed


@pytest.mark.parametrize("node", NODES)
def test_where_every_record_is_flushed_the_whole_maximal_isr_has_what_is_committed(node: int) -> None:
    model = Model(flush_messages=1)
    model.append(0, *NODES)
    model.durable_ends[node] = 0
    model.raise_leader(1)
    assert model.oracles == ["counted-before-flushed"]


def test_who_is_not_in_sync_may_flush_later() -> None:
    model = Model(flush_messages=1)
    model.append(0, *NODES)
    model.change(isr=(1, 2))
    model.durable_ends[3] = 0
    model.raise_leader(1, isr=(1, 2))
    assert model.oracles == []
    model.raise_follower(3, 1)
    assert model.oracles == ["counted-before-flushed"]


def test_a_leader_acknowledges_acks_1_when_it_has_flushed() -> None:
    model = Model(flush_messages=1)
    model.append(0, 1)
    model.replication.leader_acknowledged(KEY, 1, 0)
    assert model.oracles == []
    model.durable_ends[1] = 0
    model.replication.leader_acknowledged(KEY, 1, 0)
    assert model.oracles == ["counted-before-flushed"]


@pytest.mark.parametrize("flush_messages", [2, LONG_MAX])
def test_other_topics_promise_no_flush(flush_messages: int) -> None:
    model = Model(flush_messages=flush_messages)
    model.durable_ends = dict.fromkeys(NODES, 0)
    model.append(0, *NODES)
    model.replication.leader_acknowledged(KEY, 1, 0)
    model.raise_leader(1)
    assert model.oracles == []
