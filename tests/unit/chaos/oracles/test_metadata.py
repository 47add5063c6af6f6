"""The oracles of the metadata and of the quorum: each fires, and not on the story next to it."""

from dataclasses import replace

import pytest

from kraft.chaos.oracles.metadata import Entry
from kraft.chaos.oracles.raft import COVERED
from quorum.metadata.image import PartitionImage
from quorum.metadata.records import BrokerChange
from tests.unit.chaos.oracles.model import NODES, Model, broker


@pytest.fixture
def model() -> Model:
    return Model()


# -- metadata-agreement


def test_one_offset_has_one_entry(model: Model) -> None:
    model.metadata.committed(2, [Entry(model.offset, 1, b"other")], model.image())
    assert model.oracles == ["metadata-agreement"]


def test_the_same_entry_may_be_applied_again_and_again(model: Model) -> None:
    model.metadata.committed(2, [Entry(model.offset, 1, b"%d" % model.offset)], model.image())
    model.metadata.applied(3, [Entry(model.offset, 1, b"%d" % model.offset)], model.image())
    assert model.oracles == []


def test_a_broker_applies_only_what_a_controller_committed(model: Model) -> None:
    model.metadata.applied(
        3, [Entry(model.offset + 1, 1, b"")], replace(model.image(), offset=model.offset + 1)
    )
    assert model.oracles == ["metadata-agreement"]


@pytest.mark.parametrize("more", range(4))
def test_images_at_one_offset_are_equal(model: Model, more: int) -> None:
    for _ in range(more):
        model.commit_metadata()
    model.metadata.applied(3, (), replace(model.image(), next_producer_id=7))
    assert model.oracles == ["metadata-agreement"]


def test_equal_images_are_equal(model: Model) -> None:
    model.metadata.applied(3, (), model.image())
    assert model.oracles == []


def test_what_nobody_saw_committed_is_taken_from_the_image(model: Model) -> None:
    model.state = replace(model.state, isr=(1, 2), partition_epoch=1)
    model.offset += 5
    model.metadata.committed(2, (), model.image())
    assert model.metadata.partition((next(iter(model.image().topics)), 0)) == model.state
    assert model.oracles == []


# -- epochs-grow


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(0, 3), (1, 1), (1, 0)])
def test_epochs_never_go_back(model: Model, leader_epoch: int, partition_epoch: int) -> None:
    model.state = PartitionImage(NODES, (1, 2), 1, 1, 1)
    model.commit_metadata()
    model.state = PartitionImage(NODES, (1, 3), 1, leader_epoch, partition_epoch)
    model.commit_metadata()
    assert model.oracles == ["epochs-grow"]


def test_epochs_may_grow(model: Model) -> None:
    model.change(isr=(1, 2))
    model.change(isr=(1, 2), leader=2)
    assert model.oracles == []


def test_broker_epochs_never_go_back(model: Model) -> None:
    model.brokers[2] = broker(2, epoch=9)
    model.commit_metadata(BrokerChange(2, 9))
    model.brokers[2] = broker(2, epoch=8)
    model.commit_metadata(BrokerChange(2, 8))
    assert model.oracles == ["epochs-grow"]


def test_published_metadata_never_goes_back(model: Model) -> None:
    model.metadata.went_back(2, 9, 8)
    assert model.oracles == ["epochs-grow"]


# -- one-leader-per-epoch


def test_a_leader_changes_with_its_epoch(model: Model) -> None:
    model.state = replace(model.state, leader=2, partition_epoch=1)
    model.commit_metadata()
    assert model.oracles == ["one-leader-per-epoch"]


# -- fenced-not-in-isr


@pytest.mark.parametrize("flags", [{"fenced": True}, {"stopping": True}])
def test_a_fenced_broker_is_in_no_isr(model: Model, flags: dict[str, bool]) -> None:
    model.brokers[3] = broker(3, **flags)
    model.commit_metadata(BrokerChange(3, 3, fenced=True))
    assert model.oracles == ["fenced-not-in-isr"]


def test_a_fenced_broker_leads_nothing(model: Model) -> None:
    model.change(isr=(1,))
    model.brokers[1] = broker(1, fenced=True)
    model.commit_metadata(BrokerChange(1, 1, fenced=True))
    assert model.oracles == ["fenced-not-in-isr"]


def test_a_fenced_broker_is_not_even_the_last_member(model: Model) -> None:
    model.fence(*NODES)
    model.change(BrokerChange(1, 1, fenced=True), isr=(1,), leader=-1)
    assert model.oracles == ["fenced-not-in-isr"]


def test_an_isr_may_be_empty(model: Model) -> None:
    model.fence(*NODES)
    model.change(BrokerChange(1, 1, fenced=True), isr=(), leader=-1)
    assert model.oracles == []
    assert model.verdicts.coverage["nobody in the ISR"] == 1


def test_a_fenced_broker_that_left_the_isr_is_fine(model: Model) -> None:
    model.change(isr=(1, 2))
    model.brokers[3] = broker(3, fenced=True)
    model.commit_metadata(BrokerChange(3, 3, fenced=True))
    assert model.oracles == []


# -- leader-elected


@pytest.mark.parametrize(
    ("offline", "isr", "elr", "last_known_elr", "somebody_may"),
    [
        ((), (1,), (), (), True),
        ((), (), (2, 3), (), True),
        ((1,), (1,), (), (), False),
        ((1,), (1,), (2,), (), True),
        ((2,), (), (2,), (), False),
        ((), (), (), (1,), True),
        ((), (), (), (1, 2), False),
        ((1,), (), (), (1,), False),
        ((2,), (), (2,), (1,), False),
    ],
)
def test_who_may_lead_leads(
    model: Model,
    offline: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    last_known_elr: tuple[int, ...],
    somebody_may: bool,
) -> None:
    model.state = replace(
        model.state,
        leader=-1,
        leader_epoch=1,
        partition_epoch=1,
        isr=isr,
        elr=elr,
        last_known_elr=last_known_elr,
        offline_replicas=offline,
    )
    model.commit_metadata()
    assert ("leader-elected" in model.oracles) == somebody_may


@pytest.mark.parametrize(("elr", "oracles"), [((), []), ((2,), ["leader-elected", "offline-not-in-isr"])])
def test_an_offline_member_stays_in_the_isr_only_if_it_is_the_last_that_may_lead(
    model: Model, elr: tuple[int, ...], oracles: list[str]
) -> None:
    model.change(isr=(1,), elr=elr)
    model.verdicts.violations.clear()
    model.change(isr=(1,), leader=-1, elr=elr, offline_replicas=(1,))
    assert [name for name in model.oracles if name != "eligible-leaders"] == oracles


# -- vote-once, one-controller-per-epoch


def test_a_voter_votes_once_in_a_term(model: Model) -> None:
    model.quorum.voted(1, 5, 2)
    model.quorum.voted(1, 5, 2)
    model.quorum.voted(1, 6, 3)
    model.quorum.voted(2, 5, 3)
    assert model.oracles == []
    model.quorum.voted(1, 5, 3)
    assert model.oracles == ["vote-once"]


def test_a_voter_whose_memory_was_wiped_is_another_one(model: Model) -> None:
    model.quorum.voted(1, 5, 2)
    model.quorum.forget(1)
    model.quorum.voted(1, 5, 3)
    assert model.oracles == []


def test_one_voter_leads_a_term(model: Model) -> None:
    model.quorum.led(1, 5, lambda index: COVERED)
    model.quorum.heard(2, 5, 1)
    assert model.oracles == []
    model.quorum.led(2, 5, lambda index: COVERED)
    assert model.oracles == ["one-controller-per-epoch"]


def test_nobody_follows_another_than_the_leader_of_a_term(model: Model) -> None:
    model.quorum.led(1, 5, lambda index: COVERED)
    model.quorum.heard(2, 5, 3)
    assert model.oracles == ["one-controller-per-epoch"]


def test_one_controller_is_active_in_an_epoch(model: Model) -> None:
    model.quorum.became_active(1, 5)
    model.quorum.became_active(1, 5)
    assert model.oracles == []
    model.quorum.became_active(2, 5)
    assert model.oracles == ["one-controller-per-epoch"]


@pytest.mark.parametrize("found", [None, 0])
def test_a_new_leader_of_the_quorum_has_all_that_was_committed(model: Model, found: int | None) -> None:
    model.quorum.led(2, 5, lambda index: found)
    assert model.oracles == ["metadata-agreement"]


def test_a_new_leader_of_the_quorum_may_have_more(model: Model) -> None:
    model.quorum.led(2, 5, lambda index: 1)
    assert model.oracles == []


def test_a_snapshot_holds_only_what_is_committed(model: Model) -> None:
    model.quorum.snapshot(1, model.offset, 1, installed=False)
    assert model.oracles == []
    model.quorum.snapshot(1, model.offset + 1, 1, installed=False)
    assert model.oracles == ["metadata-agreement"]


def test_a_snapshot_ends_with_the_entry_that_is_committed_there(model: Model) -> None:
    model.quorum.snapshot(1, model.offset, 2, installed=True)
    assert model.oracles == ["metadata-agreement"]
