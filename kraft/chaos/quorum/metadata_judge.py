"""What the controllers promise, judged on every entry that is committed first: topics and proposals.

The oracles: `topic-whole` (a topic is in an image with all that was asked for, or not at all; KIP-868),
`proposals-in-sequence` (accepted is exactly the next sequence of the entry's own term, and what is committed
is what the controller foresaw when it decided), `acknowledged-topic` (what an operator was told is so, and
happened once), `equal-images`. Pure: fed by `voter` and `operators`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.machine import Application
from quorum.controller.proposal import Proposal
from quorum.errors import MalformedProposalError
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import TOPIC_RESOURCE, BrokerChange, RemoveTopic, Topic, VoterIdentity

COMPARE_EVERY = 8
"""Images are compared byte by byte at offsets that this divides: a difference does not heal by itself."""
CONFIG = "retention.ms"


@dataclass
class Wish:
    """One topic that an operator asks for; names are used once."""

    name: str
    partitions: int
    replication_factor: int
    config: str
    created: bool = False
    """The operator knows that it was created."""
    removal_asked: bool = False
    removed: bool = False
    """The operator knows that it was removed."""


@dataclass
class _Foreseen:
    offset: int
    image: MetadataImage | None


@dataclass
class MetadataJudge:
    """All topics and proposals of one run."""

    happened: Callable[[str, str], None]
    wishes: dict[str, Wish] = field(default_factory=dict)
    _images: dict[int, bytes] = field(default_factory=dict)
    _foreseen: dict[tuple[int, int], _Foreseen] = field(default_factory=dict)
    _born: dict[str, bytes] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _known: dict[bytes, str] = field(default_factory=dict)
    _fence: tuple[int, int | None] = (0, None)
    _displaced: set[int] = field(default_factory=set)
    """Terms with an entry that nobody foresaw: proposals of an earlier epoch, say, that the same voter's lane
    still held when it was elected again. What follows them is accepted, and its controller renounces."""
    _offset: int = 1

    # -- what was asked for and foreseen

    def wished(self, wish: Wish) -> None:
        """An operator is about to ask for a topic."""
        self.wishes[wish.name] = wish

    def foresaw(self, epoch: int, sequence: int, offset: int, image: MetadataImage | None) -> None:
        """A controller proposed: if this is accepted, it is at `offset` and leaves `image` (where known)."""
        self._foreseen[epoch, sequence] = _Foreseen(offset, image)

    # -- what is committed

    def committed(self, one: Application) -> None:
        """An entry that nobody had handed out before. Entries may be missing in between: a snapshot covered
        them, and whoever applied them died before it could say so. If they come up later, they are no news.
        """
        if one.offset <= self._offset:
            return
        skipped, self._offset = one.offset != self._offset + 1, one.offset
        if skipped:
            self._fence = (one.epoch, None)
            self._displaced.add(one.epoch)
        if one.data is None:
            self._compare_topics(one.image, skipped)
            return
        assert one.applied is not None
        self._judge_sequence(one)
        if one.applied.accepted:
            for record in one.applied.records:
                self._note(record)
            self._compare_topics(one.image, skipped)
        else:
            self._displaced.add(one.epoch)
            self.happened(counters.REFUSED, f"at offset {one.offset}")

    def _judge_sequence(self, one: Application) -> None:
        assert one.applied is not None
        assert one.data is not None
        try:
            proposal = Proposal.decode(one.data)
        except MalformedProposalError:
            return
        epoch, expected = self._fence
        if one.epoch != epoch:
            expected = 0
        right = proposal.controller_epoch == one.epoch and proposal.sequence == expected
        if expected is not None and one.applied.accepted and not right:
            raise Violation(
                "proposals-in-sequence",
                f"at offset {one.offset} of term {one.epoch}, where sequence {expected} was due, sequence"
                f" {proposal.sequence} of epoch {proposal.controller_epoch} was accepted",
            )
        if expected is not None and right and not one.applied.accepted:
            raise Violation(
                "proposals-in-sequence",
                f"at offset {one.offset} the next proposal in sequence was refused: {one.applied.rejection}",
            )
        if one.applied.accepted:
            self._fence = (one.epoch, proposal.sequence + 1)
            self._compare_foreseen(one, proposal)

    def _compare_foreseen(self, one: Application, proposal: Proposal) -> None:
        foreseen = self._foreseen.get((proposal.controller_epoch, proposal.sequence))
        if foreseen is None:
            return
        if foreseen.offset != one.offset:
            if one.epoch in self._displaced:
                return
            raise Violation(
                "proposals-in-sequence",
                f"sequence {proposal.sequence} of epoch {one.epoch} was accepted at offset {one.offset}; decided it"
                f" was for offset {foreseen.offset}",
            )
        compared = one.offset % COMPARE_EVERY == 0
        if compared and foreseen.image is not None and foreseen.image.encode() != one.image.encode():
            raise Violation(
                "proposals-in-sequence",
                f"the proposal at offset {one.offset} was decided on another image than the one it was applied to",
            )

    def _note(self, record: object) -> None:
        if isinstance(record, Topic):
            if record.name in self._born:
                raise Violation("acknowledged-topic", f"topic {record.name} was created twice")
            self._born[record.name] = record.topic_id
            self._known[record.topic_id] = record.name
            self.happened(counters.TOPIC_CREATED, record.name)
        elif isinstance(record, RemoveTopic):
            name = self._known.get(record.topic_id)
            if name is not None:
                self._gone.add(name)
            self.happened(counters.TOPIC_DELETED, name or "")
        elif isinstance(record, VoterIdentity):
            self.happened(counters.VOTER_RECORDED, f"voter {record.node_id}")
        elif isinstance(record, BrokerChange) and record.fenced:
            self.happened(counters.BROKER_FENCED, f"broker {record.broker_id}")

    def _compare_topics(self, image: MetadataImage, skipped: bool) -> None:
        """The image after one proposal: every topic whole, every name used once."""
        for topic_id, topic in image.topics.items():
            name = topic.name
            if skipped and name not in self._born:
                self._born[name], self._known[topic_id] = topic_id, name
            wish = self.wishes.get(name)
            if wish is None or self._born[name] != topic_id:
                raise Violation("acknowledged-topic", f"nobody asked for the topic {name} as it is")
            config = image.config(TOPIC_RESOURCE, name).get(CONFIG)
            factors = {len(partition.replicas) for partition in topic.partitions}
            if (len(topic.partitions), factors, config) != (
                wish.partitions,
                {wish.replication_factor},
                wish.config,
            ):
                raise Violation(
                    "topic-whole",
                    f"at offset {image.offset} topic {name} has {len(topic.partitions)} partitions of"
                    f" {sorted(factors)} replicas and {CONFIG}={config}; asked for were {wish.partitions} of"
                    f" {wish.replication_factor} and {wish.config}",
                )
        for kind, name in image.configs:
            if kind == TOPIC_RESOURCE and name not in image.topic_ids:
                raise Violation(
                    "topic-whole", f"at offset {image.offset} configs of {name} outlive the topic"
                )
        if skipped:
            self._gone.update(name for name in self._born if name not in image.topic_ids)

    def compare_image(self, voter: int, offset: int, image: MetadataImage, *, always: bool = False) -> None:
        """The image of a voter at an offset, now and then byte by byte."""
        if always or offset % COMPARE_EVERY == 0:
            encoded = image.encode()
            if self._images.setdefault(offset, encoded) != encoded:
                raise Violation("equal-images", f"voter {voter} has another image at offset {offset}")

    # -- what operators were told

    def told_created(self, wish: Wish, topic_id: bytes | None) -> None:
        """An operator was told that its topic is there (with this id, or that it had been there already)."""
        wish.created = True
        born = self._born.get(wish.name)
        if born is None or (topic_id is not None and born != topic_id):
            raise Violation("acknowledged-topic", f"topic {wish.name} was acknowledged, and is not committed")

    def told_removed(self, wish: Wish) -> None:
        """An operator was told that its topic is gone."""
        wish.removed = True
        if wish.name not in self._gone:
            raise Violation("acknowledged-topic", f"topic {wish.name} was removed by word, and not by deed")

    def is_gone(self, wish: Wish) -> bool:
        """Whether the topic's removal is committed."""
        return wish.name in self._gone

    def check_end(self, image: MetadataImage) -> None:
        """The image in the end holds what was acknowledged, and nothing that was removed."""
        for wish in self.wishes.values():
            there = wish.name in image.topic_ids
            if wish.created and not wish.removal_asked and not there:
                raise Violation("acknowledged-topic", f"the acknowledged topic {wish.name} is not there")
            if wish.removed and there:
                raise Violation("acknowledged-topic", f"the removed topic {wish.name} is there")
