"""Records make images; images are values; what does not fit changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import pytest

from quorum import errors
from quorum.errors import AclExistsError, UnknownAclError
from quorum.metadata import records as r
from quorum.metadata.acls import Acl
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage, ScramCredential

A, B = b"a" * 16, b"b" * 16


def applied(image: MetadataImage, records: Sequence[r.Record], offset: int | None = None) -> MetadataImage:
    delta = MetadataDelta(image)
    at = image.offset + 1 if offset is None else offset
    for record in records:
        delta.apply(record, at, 1)
    return delta.finish(at, 1)


def broker(broker_id: int) -> r.RegisterBroker:
    return r.RegisterBroker(broker_id, bytes([broker_id]) * 16, (r.Listener("A", "h", 1, "P"),), None, ())


BASE = applied(
    EMPTY,
    [
        broker(1),
        broker(2),
        r.Topic("orders", A),
        r.Config("topic", "orders", "retention.ms", "5"),
        r.Partition(A, 0, (1, 2), (1, 2), 1),
        r.Partition(A, 1, (2, 1), (2, 1), 2),
    ],
    offset=10,
)


def test_a_broker_epoch_is_the_offset_of_its_registration() -> None:
    image = applied(BASE, [broker(3)], offset=42)
    assert image.brokers[3].epoch == 42
    assert image.brokers[3].fenced
    again = applied(image, [broker(1)], offset=50)
    assert again.brokers[1].epoch == 50


def test_changes_bump_epochs() -> None:
    image = applied(BASE, [r.PartitionChange(A, 0, isr=(2,), leader=2), r.PartitionChange(A, 1, isr=(2,))])
    assert image.partition(A, 0) == PartitionImage((1, 2), (2,), 2, 1, 1)
    assert image.partition(A, 1) == PartitionImage((2, 1), (2,), 2, 0, 1)
    same_leader = applied(image, [r.PartitionChange(A, 0, leader=2)])
    assert same_leader.partition(A, 0) == PartitionImage((1, 2), (2,), 2, 2, 2)


def test_every_field_of_a_partition_can_change() -> None:
    image = applied(
        BASE,
        [
            r.PartitionChange(
                A,
                0,
                isr=(),
                leader=-1,
                replicas=(1, 2, 3),
                removing_replicas=(1,),
                adding_replicas=(3,),
                elr=(1, 2),
                last_known_elr=(1,),
                offline_replicas=(2, 3),
            )
        ],
    )
    partition = image.partition(A, 0)
    assert partition == PartitionImage((1, 2, 3), (), -1, 1, 1, r.RECOVERED, (1,), (3,), (1, 2), (1,), (2, 3))
    assert partition.is_reassigning
    assert MetadataImage.decode(image.encode()) == image
    change = r.PartitionChange(A, 0, isr=(3,), leader=3, elr=(), last_known_elr=(), offline_replicas=(2,))
    again = applied(image, [change])
    assert again.partition(A, 0) == PartitionImage(
        (1, 2, 3), (3,), 3, 2, 2, r.RECOVERED, (1,), (3,), offline_replicas=(2,)
    )
    kept = applied(again, [r.PartitionChange(A, 0, leader=3)])
    assert kept.topics[A].partitions[0].offline_replicas == (2,)


def test_a_partition_can_be_created_with_offline_replicas() -> None:
    image = applied(BASE, [r.Partition(A, 2, (1, 2), (2,), 2, offline_replicas=(1,))])
    assert image.partition(A, 2) == PartitionImage((1, 2), (2,), 2, 0, 0, offline_replicas=(1,))
    assert MetadataImage.decode(image.encode()) == image


def test_the_last_in_the_isr_may_be_offline_while_nobody_leads() -> None:
    """Without an ELR it is remembered there."""
    image = applied(BASE, [r.PartitionChange(A, 0, isr=(1,), leader=-1, offline_replicas=(1, 2))])
    assert MetadataImage.decode(image.encode()) == image


def test_offline_replicas_and_unclean_elections_cost_a_byte_where_there_is_none() -> None:
    """A hundred thousand partitions have none."""
    more = applied(BASE, [r.Partition(A, 2, (1, 2), (1, 2), 1)], offset=10)
    assert len(more.encode()) - len(BASE.encode()) == 17
    assert more.topics[A].partitions[2].offline_replicas is BASE.topics[A].partitions[0].offline_replicas


def test_the_isr_is_the_same_object_as_equal_replicas() -> None:
    """A hundred thousand partitions are in sync most of the time: the tuple is kept once."""
    shrunk = applied(BASE, [r.PartitionChange(A, 0, isr=(1,))])
    image = applied(shrunk, [r.PartitionChange(A, 0, isr=tuple(range(1, 3)))])
    for read in (image, MetadataImage.decode(image.encode())):
        partition = read.topics[A].partitions[0]
        assert partition.isr is partition.replicas


def test_features_and_voters() -> None:
    level, voter = r.FeatureLevel, r.VoterIdentity
    image = applied(
        BASE, [level("x", 1), level("y", 2), level("x", 0), level("y", 3), voter(3, A), voter(1, B)]
    )
    assert (image.features, image.voters) == ({"y": 3}, {1: B, 3: A})
    assert MetadataImage.decode(image.encode()) == image
    delta = MetadataDelta(image)
    delta.apply(level("y", 0), 12, 1)
    delta.apply(voter(3, B), 12, 1)
    assert (delta.changed_features, delta.changed_voters) == (("y",), (3,))
    after = delta.finish(12, 1)
    assert (after.features, after.voters) == ({}, {1: B, 3: B})
    assert (image.features, image.voters) == ({"y": 3}, {1: B, 3: A})


def test_acls() -> None:
    read, write = (Acl(2, "t", 3, "User:alice", "*", operation, 3) for operation in (3, 4))
    image = applied(BASE, [r.AccessControlEntry(write), r.AccessControlEntry(read)])
    assert image.acls == {read, write}
    assert MetadataImage.decode(image.encode()) == image
    delta = MetadataDelta(image)
    delta.apply(r.RemoveAccessControlEntry(write), 12, 1)
    assert delta.changed_acls == (write,)
    assert (delta.finish(12, 1).acls, image.acls) == ({read}, {read, write})
    with pytest.raises(AclExistsError):
        applied(image, [r.AccessControlEntry(read)])
    with pytest.raises(UnknownAclError):
        applied(BASE, [r.RemoveAccessControlEntry(read)])


def test_an_image_of_version_3_is_read_without_acls() -> None:
    assert MetadataImage.decode(msgpack.packb([3, 10, 1, 5, [], [], [], [], []])).acls == frozenset()


def test_quotas() -> None:
    both, bytes_s = (("client-id", "app"), ("user", "")), "producer_byte_rate"
    other = (("ip", "10.0.0.1"),)
    image = applied(
        BASE,
        [
            r.ClientQuota(both, bytes_s, 1024.0),
            r.ClientQuota(both, "request_percentage", 0.5),
            r.ClientQuota(other, "connection_creation_rate", 3.0),
            r.ClientQuota(other, "connection_creation_rate", None),
        ],
    )
    assert image.client_quotas == {both: {bytes_s: 1024.0, "request_percentage": 0.5}}
    assert MetadataImage.decode(image.encode()) == image
    after = applied(image, [r.ClientQuota(both, bytes_s, None)], offset=image.offset + 1)
    assert after.client_quotas == {both: {"request_percentage": 0.5}}
    assert image.client_quotas[both][bytes_s] == 1024.0
    assert after.topics is image.topics


def test_a_registration_says_what_the_broker_can_do() -> None:
    record = r.RegisterBroker(3, b"k" * 16, (), None, (), False, 7, True, (("x", 1, 2),))
    registered = applied(BASE, [record]).brokers[3]
    assert (registered.fenced, registered.in_controlled_shutdown) == (False, True)
    assert registered.features == (("x", 1, 2),)


def test_an_image_of_version_0_is_read_with_defaults() -> None:
    old = [
        0, 10, 1, 5,
        [[1, 10, b"i" * 16, [["A", "h", 1, "P"]], None, [], False, False]],
        [[A, "orders", [[[1, 2], [1, 2], 1, 3, 4, 0]]]],
        [["topic", "orders", [["retention.ms", "5"]]]],
    ]  # fmt: skip
    image = MetadataImage.decode(msgpack.packb(old))
    assert (image.offset, image.epoch, image.next_producer_id) == (10, 1, 5)
    assert image.partition(A, 0) == PartitionImage((1, 2), (1, 2), 1, 3, 4)
    assert image.brokers[1].features == ()
    assert (image.features, image.voters) == ({}, {})
    assert image.config("topic", "orders") == {"retention.ms": "5"}


def test_an_image_of_version_1_is_read_without_offline_replicas() -> None:
    old = [
        1, 10, 1, 5,
        [[1, 10, b"i" * 16, [["A", "h", 1, "P"]], None, [], False, False, [["x", 1, 2]]]],
        [[A, "orders", [[[1, 2], [], -1, 3, 4, 0, [1], [2], [2], [1]]]]],
        [["topic", "orders", [["retention.ms", "5"]]]],
        [["x", 1]], [[7, B]],
    ]  # fmt: skip
    image = MetadataImage.decode(msgpack.packb(old))
    assert (image.offset, image.epoch, image.next_producer_id) == (10, 1, 5)
    assert image.partition(A, 0) == PartitionImage((1, 2), (), -1, 3, 4, 0, (1,), (2,), (2,), (1,), ())
    assert image.brokers[1].features == (("x", 1, 2),)
    assert (image.features, image.voters) == ({"x": 1}, {7: B})
    assert image.config("topic", "orders") == {"retention.ms": "5"}


def test_an_image_of_version_2_is_read_without_unclean_elections() -> None:
    old = [
        2, 10, 1, 5, [],
        [[A, "orders", [[[1, 2], [2], 2, 3, 4, 1, [], [], [], [], [1]]]]],
        [], [], [],
    ]  # fmt: skip
    image = MetadataImage.decode(msgpack.packb(old))
    assert image.partition(A, 0) == PartitionImage((1, 2), (2,), 2, 3, 4, 1, offline_replicas=(1,))


def test_the_last_unclean_election_is_remembered() -> None:
    """Also when the leader has long been another, elected cleanly: a replica may come back that was away since."""
    unclean = r.PartitionChange(
        A, 0, isr=(2,), leader=2, leader_recovery_state=r.RECOVERING, unclean_leader_epoch=1
    )
    later = [
        r.PartitionChange(A, 0, isr=(2, 1), leader_recovery_state=r.RECOVERED),
        r.PartitionChange(A, 0, leader=1),
    ]
    image = MetadataImage.decode(applied(BASE, [unclean, *later]).encode())
    assert image.partition(A, 0) == PartitionImage((1, 2), (2, 1), 1, 2, 3, unclean_leader_epoch=1)
    assert image.partition(A, 1) == BASE.partition(A, 1)


def test_the_base_image_is_never_touched() -> None:
    before = BASE.encode()
    applied(
        BASE,
        [
            r.PartitionChange(A, 0, isr=(1,)),
            r.Config("topic", "orders", "retention.ms", None),
            r.Topic("audit", B),
            r.BrokerChange(1, 10, fenced=False),
            r.RemoveTopic(A),
        ],
    )
    assert BASE.encode() == before


def test_untouched_sections_are_shared() -> None:
    image = applied(BASE, [r.PartitionChange(A, 0, isr=(1,))])
    assert image.brokers is BASE.brokers
    assert image.configs is BASE.configs
    assert image.topic_ids is BASE.topic_ids
    assert image.topics[A].partitions[1] is BASE.topics[A].partitions[1]


def test_a_removed_topic_takes_its_configs_with_it() -> None:
    image = applied(BASE, [r.RemoveTopic(A)])
    assert (image.topics, image.topic_ids, image.configs) == ({}, {}, {})
    reborn = applied(image, [r.Topic("orders", B)])
    assert reborn.topic("orders") == reborn.topics[B]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (r.Topic("orders", B), errors.TopicExistsError),
        (r.Topic("other", A), errors.TopicExistsError),
        (r.Topic("zero", bytes(16)), errors.TopicExistsError),
        (r.RemoveTopic(B), errors.UnknownTopicError),
        (r.Partition(B, 0, (1,), (1,), 1), errors.UnknownTopicError),
        (r.Partition(A, 1, (1,), (1,), 1), errors.UnknownPartitionError),
        (r.Partition(A, 3, (1,), (1,), 1), errors.UnknownPartitionError),
        (r.Partition(A, 2, (), (), -1), errors.InvalidPartitionStateError),
        (r.Partition(A, 2, (1,), (2,), -1), errors.InvalidPartitionStateError),
        (r.Partition(A, 2, (1, 2), (2,), 1), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 2, leader=-1), errors.UnknownPartitionError),
        (r.PartitionChange(B, 0, leader=-1), errors.UnknownTopicError),
        (r.PartitionChange(A, 0, isr=(2,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=()), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(1, 3)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, leader=3), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(1,), elr=(3,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(1,), elr=(1,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(), leader=-1, elr=(2, 2)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, replicas=(1, 3)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, replicas=()), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, adding_replicas=(3,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, removing_replicas=(2, 2)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, offline_replicas=(2,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(1,), offline_replicas=(1,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, leader=-1, offline_replicas=(2,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(1,), offline_replicas=(3,)), errors.InvalidPartitionStateError),
        (r.PartitionChange(A, 0, isr=(1,), offline_replicas=(2, 2)), errors.InvalidPartitionStateError),
        (r.BrokerChange(3, 10, True), errors.UnknownBrokerError),
        (r.BrokerChange(1, 9, True), errors.StaleBrokerEpochError),
        (r.UnregisterBroker(1, 11), errors.StaleBrokerEpochError),
        (r.Config("topic", "nowhere", "k", "v"), errors.UnknownTopicError),
        (r.ProducerIds(1, 10, 0), errors.InvalidProducerIdError),
        (r.ProducerIds(1, 9, 1000), errors.StaleBrokerEpochError),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: r.Record, error: type[Exception]) -> None:
    delta = MetadataDelta(BASE)
    with pytest.raises(error):
        delta.apply(record, 11, 1)


def test_a_registration_cannot_go_back_in_time() -> None:
    with pytest.raises(errors.StaleBrokerEpochError):
        MetadataDelta(BASE).apply(broker(1), 10, 1)


def test_a_delta_tells_what_changed() -> None:
    delta = MetadataDelta(BASE)
    for record in [
        r.Topic("new", B),
        r.Partition(B, 0, (1,), (1,), 1),
        r.PartitionChange(A, 1, isr=(2,)),
        r.PartitionChange(A, 1, isr=(2, 1)),
        r.BrokerChange(2, 10, fenced=False),
        r.Config("topic", "new", "retention.ms", "1"),
    ]:
        delta.apply(record, 11, 1)
    assert delta.changed_brokers == (2,)
    assert delta.changed_topics == (A, B)
    assert delta.created_topics == (B,)
    assert delta.deleted_topics == {}
    assert delta.changed_partitions == {(A, 1): BASE.partition(A, 1), (B, 0): None}
    assert delta.changed_configs == (("topic", "new"),)


def test_a_delta_tells_what_is_gone() -> None:
    delta = MetadataDelta(BASE)
    for record in [
        r.PartitionChange(A, 1, isr=(2,)),
        r.RemoveTopic(A),
        r.Topic("orders", B),
        r.Partition(B, 0, (1,), (1,), 1),
    ]:
        delta.apply(record, 11, 1)
    assert delta.deleted_topics == {A: BASE.topics[A]}
    assert delta.changed_topics == delta.created_topics == (B,)
    assert list(delta.changed_partitions) == [(B, 0)]
    assert delta.changed_configs == (("topic", "orders"),)
    image = delta.finish(11, 1)
    assert image.topic_ids == {"orders": B}


def test_what_came_and_went_within_a_delta_never_was() -> None:
    delta = MetadataDelta(BASE)
    for record in [r.Topic("brief", B), r.Partition(B, 0, (1,), (1,), 1), r.RemoveTopic(B)]:
        delta.apply(record, 11, 1)
    assert (delta.changed_topics, delta.deleted_topics, delta.changed_partitions) == ((), {}, {})
    assert delta.finish(10, 1) == BASE


def credential(user: str, mechanism: int = 1, salt: bytes = b"salt") -> r.UserScramCredential:
    return r.UserScramCredential(user, mechanism, salt, b"stored", b"server", 4096)


def test_users_are_set_and_removed() -> None:
    delta = MetadataDelta(BASE)
    for record in (credential("b"), credential("a", 2), credential("a"), credential("b", salt=b"new")):
        delta.apply(record, 11, 1)
    image = delta.finish(11, 1)
    assert delta.changed_scram_credentials == (("a", 1), ("a", 2), ("b", 1))
    assert image.scram_credentials["b", 1] == ScramCredential(b"new", b"stored", b"server", 4096)
    assert MetadataImage.decode(image.encode()) == image
    assert not BASE.scram_credentials
    without = applied(image, [r.RemoveUserScramCredential("a", 2)])
    assert without.scram_credentials.keys() == {("a", 1), ("b", 1)}
    with pytest.raises(errors.RecordDoesNotFitError, match="has no credential of mechanism 2"):
        applied(without, [r.RemoveUserScramCredential("a", 2)])


def test_no_text_shows_what_a_password_is_proved_with() -> None:
    image = applied(BASE, [credential("b", salt=b"SECRET")])
    for text in (repr(credential("b", salt=b"SECRET")), repr(image)):
        assert "SECRET" not in text
        assert "stored" not in text.replace("stored_", "")


def test_equal_images_have_equal_bytes_whatever_their_history() -> None:
    first = applied(EMPTY, [broker(1), broker(2), r.Topic("x", A), r.Topic("y", B)])
    second = applied(EMPTY, [r.Topic("y", B), r.Topic("x", A), broker(2), broker(1)])
    assert list(first.brokers) != list(second.brokers)
    assert first == second
    assert first.encode() == second.encode()


def test_an_image_survives_its_encoding() -> None:
    image = MetadataImage.decode(BASE.encode())
    assert image == BASE
    assert image.encode() == BASE.encode()
    assert MetadataImage.decode(EMPTY.encode()) == EMPTY


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([5, 0, 0, 0, [], [], [], [], []], "reads image versions 0 to 4"),
        ([-1, 0, 0, 0, [], [], [], [], []], "reads image versions 0 to 4"),
        ([3, 0, 0, 0, [], [], [], [], [], []], "is an array of 9 elements, not of 10"),
        ([4, 0, 0, 0, [], [], [], [], [], [["u", 1, b"s", b"k", b"k", 1]] * 2, [], []], "listed twice"),
        ([4, 0, 0, 0, [], [], [], [], [], [["u", 3, b"s", b"k", b"k", 1]], [], []], "an integer from 1 to 2"),
        ([4, 0, 0, 0, [], [], [], [], [], [["u", 1, b"s", "k", b"k", 1]], [], []], "bytes are needed"),
        ([0, 0, 0, 0, [], []], "an image of version 0 is an array of 7"),
        ([1, 0, 0, 0, [], [], []], "an image of version 1 is an array of 9"),
        ([2, 0, 0, 0, [], [], []], "is an array of 9 elements, not of 7"),
        ([2, 0, 0, 0, [], [[A, "x", [[[1], [1], 1, 0, 0, 0, [], [], [], []]]]], [], [], []], "array of 11"),
        (
            [1, 0, 0, 0, [], [[A, "x", [[[1], [1], 1, 0, 0, 0, [], [], [], [], []]]]], [], [], []],
            "array of 10",
        ),
        ([0, 0, 0, 0, [], [[A, "x", [[[1], [1], 1, 0, 0, 0, []]]]], []], "array of 6"),
        (
            [2, 0, 0, 0, [], [[A, "x", [[[1, 2], [1, 2], 1, 0, 0, 0, [], [], [], [], [2]]]]], [], [], []],
            "offline replicas",
        ),
        ([1, 0, 0, 0, [], [], [], [["x", 0]], []], "an integer from 1 to 32767"),
        ([1, 0, 0, 0, [], [], [], [["x", 1], ["x", 1]], []], "listed twice"),
        ([1, 0, 0, 0, [], [], [], [], [[1, A], [1, B]]], "listed twice"),
        ([1, 0, 0, 0, [], [[A, "x", [[[1, 2], [1], 1, 0, 0, 0, [], [], [1], []]]]], [], [], []], "share a"),
        ([0, -2, 0, 0, [], [], []], "an integer from -1"),
        ([0, 0, 0, 0, [], [[A, "x", []], [A, "y", []]], []], "listed twice"),
        ([0, 0, 0, 0, [], [[A, "x", []], [B, "x", []]], []], "listed twice"),
        ([0, 0, 0, 0, [], [[A, "x", [[[1], [2], -1, 0, 0, 0]]]], []], "not within the replicas"),
        ([0, 0, 0, 0, [], [[bytes(16), "x", []]], []], "may not be zero"),
        ([0, 0, 0, 0, [], [], [["topic", "x", []]]], "without configs"),
        ([4, 0, 0, 0, [], [], [], [], [], [], [], [[[["user", "a"]], []]]], "without quotas"),
        (
            [4, 0, 0, 0, [], [], [], [], [], [], [], [[[["user", "a"]], [["x", 1]]]]],
            "a finite float is needed",
        ),
        (
            [4, 0, 0, 0, [], [], [], [], [], [], [], [[[["user", "a"], ["ip", "b"]], [["x", 1.0]]]]],
            "ascending types",
        ),
        ("image", "an image is an array"),
    ],
)
def test_damaged_images_are_refused(value: object, sentence: str) -> None:
    with pytest.raises(errors.MalformedImageError, match=sentence):
        MetadataImage.decode(msgpack.packb(value))
