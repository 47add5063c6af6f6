"""A snapshot and the records that led to it tell publishers the same changes."""

from __future__ import annotations

import random

import pytest

from quorum.metadata.acls import Acl
from quorum.metadata.changes import ImageDiff, MetadataChanges
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import (
    AccessControlEntry,
    BrokerChange,
    ClientQuota,
    Config,
    FeatureLevel,
    Listener,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    RemoveUserScramCredential,
    Topic,
    UserScramCredential,
    VoterIdentity,
)

LISTENER = Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")


def tid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def applied(image: MetadataImage, *records: Record) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    offset = image.offset + 1
    for record in records:
        delta.apply(record, record.broker_id if isinstance(record, RegisterBroker) else offset, 1)
    return delta, delta.finish(offset, 1)


def base() -> MetadataImage:
    brokers = [RegisterBroker(n, bytes(16), (LISTENER,), None, (bytes(16),)) for n in (1, 2, 3)]
    unfenced = [BrokerChange(n, n, fenced=False) for n in (1, 2, 3)]
    topics = [
        record
        for n in (1, 2, 3)
        for record in (
            Topic(f"t{n}", tid(n)),
            Partition(tid(n), 0, (1, 2), (1, 2), 1),
            Partition(tid(n), 1, (2, 3), (2, 3), 2),
        )
    ]
    rest = [
        Config("topic", "t1", "retention.ms", "5"),
        UserScramCredential("u", 1, b"s", b"k", b"k", 4096),
        ClientQuota((("user", "bob"),), "producer_byte_rate", 5.0),
    ]
    return applied(EMPTY, *brokers, *unfenced, *topics, *rest)[1]


def told(changes: MetadataChanges) -> dict[str, object]:
    return {
        "brokers": changes.changed_brokers,
        "topics": changes.changed_topics,
        "created": changes.created_topics,
        "deleted": dict(changes.deleted_topics),
        "partitions": list(changes.changed_partitions.items()),
        "configs": changes.changed_configs,
        "features": changes.changed_features,
        "voters": changes.changed_voters,
        "users": changes.changed_scram_credentials,
        "acls": changes.changed_acls,
        "quotas": changes.changed_client_quotas,
    }


STEPS: dict[str, tuple[Record, ...]] = {
    "nothing": (),
    "a broker": (BrokerChange(2, 2, fenced=True),),
    "a leader": (PartitionChange(tid(1), 0, leader=2),),
    "an ISR": (PartitionChange(tid(2), 1, isr=(2,)),),
    "a new topic": (Topic("new", tid(9)), Partition(tid(9), 0, (1,), (1,), 1)),
    "more partitions": (Partition(tid(1), 2, (3,), (3,), 3),),
    "a topic less": (RemoveTopic(tid(1)),),
    "made anew": (RemoveTopic(tid(1)), Topic("t1", tid(9)), Partition(tid(9), 0, (1,), (1,), 1)),
    "changed, then removed": (PartitionChange(tid(1), 0, leader=2), RemoveTopic(tid(1))),
    "a config": (Config("topic", "t2", "retention.ms", "7"),),
    "a config less": (Config("topic", "t1", "retention.ms", None),),
    "a feature": (FeatureLevel("x", 1),),
    "a voter": (VoterIdentity(3, tid(1)),),
    "a user": (UserScramCredential("new", 1, b"s", b"k", b"k", 4096),),
    "a password": (UserScramCredential("u", 1, b"s", b"l", b"k", 4096),),
    "a user less": (RemoveUserScramCredential("u", 1),),
    "an ACL": (AccessControlEntry(Acl(2, "t1", 3, "User:alice", "*", 3, 3)),),
    "a quota": (ClientQuota((("user", "alice"),), "producer_byte_rate", 1.0),),
    "a quota less": (ClientQuota((("user", "bob"),), "producer_byte_rate", None),),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_snapshot_tells_what_records_tell(step: str) -> None:
    before = base()
    delta, after = applied(before, *STEPS[step])
    assert told(ImageDiff(before, after)) == told(delta)


def test_everything_is_new_to_who_knew_nothing() -> None:
    image = base()
    changes = ImageDiff(EMPTY, image)
    assert changes.changed_brokers == (1, 2, 3)
    assert changes.created_topics == changes.changed_topics == (tid(1), tid(2), tid(3))
    assert set(changes.changed_partitions.values()) == {None}
    assert told(ImageDiff(image, image)) == told(ImageDiff(EMPTY, EMPTY))


def test_many_steps_at_once_tell_no_more_than_their_sum() -> None:
    rng = random.Random(3)
    for _ in range(50):
        before = image = base()
        for _ in range(rng.randrange(1, 6)):
            number = rng.choice((1, 2, 3))
            if tid(number) in image.topics:
                leader = rng.choice((1, 2))
                image = applied(image, PartitionChange(tid(number), 0, leader=leader))[1]
        changes = ImageDiff(before, image)
        for (topic_id, number), was in changes.changed_partitions.items():
            assert was == before.partition(topic_id, number)
            assert image.partition(topic_id, number) != was
