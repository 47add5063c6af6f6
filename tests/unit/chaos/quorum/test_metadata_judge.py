"""The judge of the controllers: topics whole, proposals in sequence, operators told the truth."""

from collections import Counter

import pytest

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.judge import ORACLES, Violation
from kraft.chaos.quorum.machine import WatchedMachine
from kraft.chaos.quorum.metadata_judge import CONFIG, MetadataJudge, Wish
from quorum.controller.proposal import Proposal
from quorum.metadata.records import TOPIC_RESOURCE, Config, Listener, Partition, RegisterBroker, Topic
from quorum.raft.metadata_state_machine import MetadataStateMachine

EPOCH = 3
TOPIC_ID = bytes(15) + b"t"


def broken(oracle):
    assert oracle in ORACLES
    return pytest.raises(Violation, check=lambda violation: violation.oracle == oracle)


class Story:
    """Proposals applied by one voter, and judged."""

    def __init__(self):
        self.happened = Counter()
        self.judge = MetadataJudge(lambda what, text: self.happened.update([what]))
        self.machine = WatchedMachine(MetadataStateMachine())
        self.machine.advance(2, EPOCH)
        self.tell()
        broker = RegisterBroker(1, bytes(16), (Listener("PLAINTEXT", "host", 9092, "PLAINTEXT"),), None, ())
        self.propose(0, broker)

    def tell(self):
        for one in self.machine.take_applications():
            self.judge.committed(one)

    def apply(self, sequence, *records, epoch=EPOCH):
        data = Proposal.of(epoch, sequence, list(records)).encode()
        return self.machine.apply(data, self.machine.offset + 1, EPOCH)

    def propose(self, sequence, *records):
        self.apply(sequence, *records)
        self.tell()


@pytest.fixture
def story():
    return Story()


def topic(name="a", partitions=2, config="1000"):
    parts = [Partition(TOPIC_ID, number, (1,), (1,), 1) for number in range(partitions)]
    return [Topic(name, TOPIC_ID), *parts, Config(TOPIC_RESOURCE, name, CONFIG, config)]


def wish(story, name="a", partitions=2):
    wished = Wish(name, partitions, 1, "1000")
    story.judge.wished(wished)
    return wished


def test_a_whole_topic_is_what_was_asked_for(story):
    wished = wish(story)
    story.propose(1, *topic())
    story.judge.told_created(wished, TOPIC_ID)
    assert story.happened[counters.TOPIC_CREATED] == 1
    story.judge.check_end(story.machine.image[2])


@pytest.mark.parametrize("half", [slice(0, 2), slice(0, 3)], ids=["partitions", "configs"])
def test_half_a_topic(story, half):
    wish(story)
    with broken("topic-whole"):
        story.propose(1, *topic()[half])


def test_a_topic_that_nobody_asked_for(story):
    with broken("acknowledged-topic"):
        story.propose(1, *topic())


def test_an_acknowledged_topic_that_is_not_there(story):
    with broken("acknowledged-topic"):
        story.judge.told_created(wish(story), TOPIC_ID)


def test_an_acknowledged_topic_that_is_gone_in_the_end(story):
    wish(story).created = True
    with broken("acknowledged-topic"):
        story.judge.check_end(story.machine.image[2])


def test_a_removal_by_word_alone(story):
    wished = wish(story)
    story.propose(1, *topic())
    with broken("acknowledged-topic"):
        story.judge.told_removed(wished)


def test_a_proposal_that_is_skipped_keeps_the_next_away(story):
    wish(story)
    story.propose(2, *topic())
    assert story.happened[counters.REFUSED] == 1


def test_a_proposal_out_of_sequence_that_is_accepted(story):
    wish(story)
    story.apply(1, *topic())
    [one] = story.machine.take_applications()
    wrong = Proposal.decode(one.data)
    with broken("proposals-in-sequence"):
        story.judge.committed(one._replace(data=Proposal(EPOCH, 7, wrong.records).encode()))


def test_the_next_in_sequence_that_is_refused(story):
    wish(story)
    story.apply(2, *topic())
    [one] = story.machine.take_applications()
    refused = Proposal.decode(one.data)
    with broken("proposals-in-sequence"):
        story.judge.committed(one._replace(data=Proposal(EPOCH, 1, refused.records).encode()))


def test_a_proposal_that_is_not_where_its_controller_saw_it(story):
    wish(story)
    story.judge.foresaw(EPOCH, 1, story.machine.offset + 2, None)
    with broken("proposals-in-sequence"):
        story.propose(1, *topic())


def test_a_proposal_behind_one_that_was_refused_may_be_elsewhere(story):
    wish(story)
    story.judge.foresaw(EPOCH, 1, story.machine.offset + 1, None)
    story.propose(5, *topic())
    story.propose(1, *topic())
    assert story.happened[counters.TOPIC_CREATED] == 1


def test_images_at_one_offset(story):
    image = story.machine.image[2]
    story.judge.compare_image(1, 8, image)
    story.judge.compare_image(2, 8, image)
    wish(story)
    story.propose(1, *topic())
    with broken("equal-images"):
        story.judge.compare_image(3, 8, story.machine.image[2])
