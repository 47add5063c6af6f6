"""The replicated metadata: what the fence lets through, and what a snapshot brings back."""

import pytest

from quorum.controller.proposal import Proposal
from quorum.metadata.records import Partition, Topic
from quorum.raft.events import Committed
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.steps import finished
from tests.support.scripted_voter import ScriptedVoter, formatted_storage


def topic(number: int) -> list[object]:
    topic_id = number.to_bytes(16, "big")
    return [
        Topic(name=f"topic-{number}", topic_id=topic_id),
        Partition(
            topic_id=topic_id,
            partition=0,
            replicas=(1, 2),
            isr=(1, 2),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
    ]


def proposal(epoch: int, sequence: int, number: int) -> bytes:
    return Proposal.of(epoch, sequence, topic(number)).encode()


def test_proposals_are_applied_in_sequence_and_only_in_their_own_epoch():
    machine = MetadataStateMachine()
    machine.advance(2, 4)
    rows = [(4, 0, 1), (4, 2, 2), (3, 1, 3), (4, 1, 4)]
    results = [machine.apply(proposal(*row), 3 + n, 4) for n, row in enumerate(rows)]
    assert [result.accepted for result in results] == [True, False, False, True]
    assert sorted(machine.image.topic_ids) == ["topic-1", "topic-4"]
    assert (machine.image.offset, machine.image.epoch) == (6, 4)


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", bytes(50)])
def test_what_is_no_proposal_only_moves_the_offset(data):
    machine = MetadataStateMachine()
    result = machine.apply(data, 3, 1)
    assert (result.accepted, machine.image.offset) == (False, 3)
    assert result.rejection


def test_a_snapshot_brings_back_image_and_fence():
    machine = MetadataStateMachine()
    machine.apply(proposal(4, 0, 1), 3, 4)
    again = MetadataStateMachine()
    again.restore(finished(machine.snapshot_steps()))
    assert again.image == machine.image
    assert finished(again.snapshot_steps()) == finished(machine.snapshot_steps())
    assert not again.apply(proposal(4, 0, 2), 4, 4).accepted
    assert again.apply(proposal(4, 1, 3), 5, 4).accepted


def test_a_snapshot_is_of_the_state_at_its_beginning():
    machine = MetadataStateMachine()
    machine.apply(proposal(4, 0, 1), 3, 4)
    before = finished(machine.snapshot_steps())
    steps = machine.snapshot_steps()
    machine.apply(proposal(4, 1, 2), 4, 4)
    assert finished(steps) == before != finished(machine.snapshot_steps())


@pytest.mark.parametrize("data", [b"", b"\x94\x01\x02\x03\xc4\x00", b"\x94\x09\x02\x03\xc4\x00", b"\x01"])
def test_bytes_that_are_no_snapshot_are_refused(data):
    with pytest.raises(ValueError, match=r"snapshot|image"):
        MetadataStateMachine().restore(data)


def test_a_voter_hands_out_records_and_image_and_restores_them_from_a_snapshot():
    storage = formatted_storage()
    voter = ScriptedVoter(voters=1, storage=storage, snapshot_every_entries=4, machine=MetadataStateMachine())
    voter.step()
    epoch = voter.leadership.epoch
    effects = []
    for sequence in range(6):
        voter.propose(sequence, proposal(epoch, sequence, sequence + 1))
        effects += voter.effects
    committed = [effect for effect in effects if isinstance(effect, Committed)]
    assert [len(effect.entries[0].records) for effect in committed] == [2] * 6
    assert [effect.entries[0].sequence for effect in committed] == list(range(6))
    image = committed[-1].image
    voter.driver.close()
    again = ScriptedVoter(voters=1, storage=storage, snapshot_every_entries=4, machine=MetadataStateMachine())
    again.step()
    assert again.machine.image.topics == image.topics
