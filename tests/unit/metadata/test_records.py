"""Records are understood by every node or refused by every node."""

from __future__ import annotations

import msgpack
import pytest

from quorum.errors import MalformedRecordError
from quorum.metadata import record_codec as codec
from quorum.metadata import records as r
from quorum.metadata.acls import Acl

TOPIC_ID = bytes(range(16))
LISTENER = r.Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
ONE_OF_EACH = [
    r.RegisterBroker(1, b"i" * 16, (LISTENER,), "a", (b"d" * 16,)),
    r.RegisterBroker(2, b"j" * 16, (), None, (), fenced=False),
    r.RegisterBroker(3, b"k" * 16, (), None, (), True, 2**40, True, (("metadata.version", 1, 26),)),
    r.UnregisterBroker(1, 2**40),
    r.BrokerChange(1, 7, fenced=True),
    r.BrokerChange(1, 7, None, False),
    r.Topic("orders", TOPIC_ID),
    r.Partition(TOPIC_ID, 0, (1, 2), (1,), 1),
    r.PartitionChange(TOPIC_ID, 0, isr=(2, 1)),
    r.PartitionChange(TOPIC_ID, 0, leader=-1, leader_recovery_state=r.RECOVERING),
    r.Partition(TOPIC_ID, 1, (1, 2, 3), (), -1, 4, 5, r.RECOVERED, (1,), (3,), (2,), (1,), (3, 1)),
    r.PartitionChange(TOPIC_ID, 0, None, None, None, (1, 2, 3), (1,), (3,), (2,), (), (2,)),
    r.PartitionChange(TOPIC_ID, 0, offline_replicas=()),
    r.PartitionChange(TOPIC_ID, 0, leader=2, leader_recovery_state=r.RECOVERING, unclean_leader_epoch=7),
    r.RemoveTopic(TOPIC_ID),
    r.Config(r.TOPIC_RESOURCE, "orders", "retention.ms", "1"),
    r.Config(r.TOPIC_RESOURCE, "orders", "retention.ms", None),
    r.ProducerIds(1, 7, 1000),
    r.NoOp(),
    r.FeatureLevel("eligible.leader.replicas.version", 1),
    r.VoterIdentity(3, b"v" * 16),
    r.UserScramCredential("alice", r.SCRAM_SHA_512, b"salt", b"stored", b"server", 4096),
    r.RemoveUserScramCredential("alice", r.SCRAM_SHA_256),
    r.AccessControlEntry(Acl(2, "orders", 3, "User:alice", "*", 3, 3)),
    r.RemoveAccessControlEntry(Acl(4, "kafka-cluster", 3, "User:*", "::1", 2, 2)),
    r.ClientQuota((("client-id", "app"), ("user", "")), "producer_byte_rate", 1024.0),
    r.ClientQuota((("ip", "10.0.0.1"),), "connection_creation_rate", None),
]


def test_what_is_written_is_read() -> None:
    data = codec.encode_records(ONE_OF_EACH)
    assert codec.decode_records(data) == ONE_OF_EACH
    for count in (0, 1, len(ONE_OF_EACH), len(ONE_OF_EACH) + 1):
        assert codec.first_records(data, count) == ONE_OF_EACH[:count]
    assert codec.encode_records(codec.decode_records(data)) == data
    assert {type(record) for record in ONE_OF_EACH} == set(r.Record.__args__)


def test_the_format_is_pinned() -> None:
    """Logs of earlier versions must stay readable: kinds, versions and the order of fields do not move."""
    assert [msgpack.unpackb(codec.encode_record(record))[:2] for record in ONE_OF_EACH] == [
        [1, 1], [1, 1], [1, 1], [2, 0], [3, 0], [3, 0], [4, 0], [5, 2], [6, 3], [6, 3], [5, 2], [6, 3],
        [6, 3], [6, 3], [7, 0], [8, 0], [8, 0], [9, 0], [10, 0], [11, 0], [12, 0],
        [13, 0], [14, 0], [15, 0], [16, 0], [17, 0], [17, 0],
    ]  # fmt: skip
    assert (
        codec.encode_record(ONE_OF_EACH[7]).hex()
        == "9f0502c410" + TOPIC_ID.hex() + "00" + "920102" + "9101" + "01000000" + "9090909090"
    )
    assert (
        codec.encode_record(r.PartitionChange(TOPIC_ID, 0, offline_replicas=(2,))).hex()
        == "9e0603c410" + TOPIC_ID.hex() + "00" + "c0" * 8 + "9102" + "c0"
    )


def test_records_of_version_0_are_read_with_defaults() -> None:
    old = [
        [1, 0, 1, b"i" * 16, [list(LISTENER)], "a", [b"d" * 16], False],
        [5, 0, TOPIC_ID, 0, [1, 2], [1], 1, 3, 4, 1],
        [6, 0, TOPIC_ID, 0, [2, 1], None, 0],
    ]
    assert codec.decode_records(msgpack.packb(old)) == [
        r.RegisterBroker(1, b"i" * 16, (LISTENER,), "a", (b"d" * 16,), fenced=False),
        r.Partition(TOPIC_ID, 0, (1, 2), (1,), 1, 3, 4, r.RECOVERING),
        r.PartitionChange(TOPIC_ID, 0, isr=(2, 1), leader_recovery_state=r.RECOVERED),
    ]


def test_records_of_version_1_know_of_no_offline_replicas() -> None:
    old = [
        [5, 1, TOPIC_ID, 0, [1, 2], [1], 1, 3, 4, 1, [2], [1], [2], [1]],
        [6, 1, TOPIC_ID, 0, [2, 1], None, 0, [1, 2], [1], [2], [1], [2]],
    ]
    assert codec.decode_records(msgpack.packb(old)) == [
        r.Partition(TOPIC_ID, 0, (1, 2), (1,), 1, 3, 4, r.RECOVERING, (2,), (1,), (2,), (1,), ()),
        r.PartitionChange(
            TOPIC_ID, 0, (2, 1), None, r.RECOVERED, (1, 2), (1,), (2,), (1,), (2,), offline_replicas=None
        ),
    ]


def test_a_change_of_version_2_tells_no_unclean_election() -> None:
    old = [[6, 2, TOPIC_ID, 0, [2], 2, 1, None, None, None, None, None, [1]]]
    assert codec.decode_records(msgpack.packb(old)) == [
        r.PartitionChange(
            TOPIC_ID, 0, (2,), 2, r.RECOVERING, offline_replicas=(1,), unclean_leader_epoch=None
        )
    ]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([[99, 0]], "record 0 is of kind 99 version 0, which this node does not know"),
        ([[10, 0], [7, 1, TOPIC_ID]], "record 1 is of kind 7 version 1"),
        ([[5, 3, TOPIC_ID]], "record 0 is of kind 5 version 3"),
        ([[7, 0, TOPIC_ID, 1]], r"record 0 \(RemoveTopic\) has 2 fields instead of 1"),
        ([[7, 0]], r"record 0 \(RemoveTopic\) has 0 fields instead of 1"),
        ([[7, 0, b"short"]], "field topic_id: 16 bytes are needed"),
        ([[3, 0, 1, 7, 1, None]], "field fenced: a boolean is needed, not int 1"),
        ([[3, 0, True, 7, None, None]], "field broker_id: an integer"),
        ([[9, 0, 1, -1, 1000]], "field broker_epoch: an integer"),
        ([[5, 0, TOPIC_ID, 0, [1, 1], [1], 1, 0, 0, 0]], "field replicas: broker ids may not repeat"),
        ([[5, 0, TOPIC_ID, 0, [1, -2], [1], 1, 0, 0, 0]], "field replicas: a broker id"),
        ([[5, 0, TOPIC_ID, 0, {}, [1], 1, 0, 0, 0]], "field replicas: an array"),
        ([[5, 0, TOPIC_ID, 0, [1], [1], -2, 0, 0, 0]], "field leader: an integer"),
        ([[6, 0, TOPIC_ID, 0, None, None, 2]], "field leader_recovery_state"),
        (
            [[1, 0, 1, b"i" * 16, [["A", "h", 70000, "P"]], None, [], True]],
            "field listeners: an integer from 0 to 65535",
        ),
        ([[4, 0, "x" * 250, TOPIC_ID]], "field name: a string of at most 249"),
        (
            [[1, 1, 1, b"i" * 16, [], None, [], True, -2, False, []]],
            "field previous_broker_epoch: an integer",
        ),
        (
            [[1, 1, 1, b"i" * 16, [], None, [], True, -1, False, [["x", 2, 1]]]],
            "field features: the lowest level 2 of a feature is above its highest, 1",
        ),
        ([[5, 1, TOPIC_ID, 0, [1], [1], 1, 0, 0, 0, [], [], [2, 2], []]], "field elr: broker ids may not"),
        ([[6, 1, TOPIC_ID, 0, None, None, None]], r"\(PartitionChange\) has 5 fields instead of 10"),
        (
            [[5, 2, TOPIC_ID, 0, [1], [1], 1, 0, 0, 0, [], [], [], []]],
            r"\(Partition\) has 12 fields instead of 13",
        ),
        (
            [[5, 2, TOPIC_ID, 0, [1], [1], 1, 0, 0, 0, [], [], [], [], None]],
            "field offline_replicas: an array",
        ),
        ([[6, 2, TOPIC_ID, 0, *[None] * 8, [1, 1]]], "field offline_replicas: broker ids may not repeat"),
        ([[11, 0, "x", 2**15]], "field level: an integer from 0 to 32767"),
        ([[12, 0, 1, b"short"]], "field directory_id: 16 bytes"),
        ([7], "record 0 is not an array"),
        ([["x", 0]], "record 0 is not an array"),
        ({}, "metadata records are an array"),
        (None, "metadata records are an array"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(value: object, sentence: str) -> None:
    with pytest.raises(MalformedRecordError, match=sentence):
        codec.decode_records(msgpack.packb(value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 2000,
        b"\xdd\x00\x00\xff\xff" * 500,
        codec.encode_records(ONE_OF_EACH)[:-1],
        codec.encode_records(ONE_OF_EACH) + b"\x00",
        msgpack.packb([msgpack.ExtType(5, b"x")]),
        b"\x81\x90\x01",
    ],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        codec.decode_records(data)


def test_values_from_outside_can_be_checked_before_they_are_written() -> None:
    codec.validate(ONE_OF_EACH[0])
    with pytest.raises(MalformedRecordError, match="field rack"):
        codec.validate(r.RegisterBroker(1, b"i" * 16, (), "x" * 256, ()))


def test_a_list_is_bounded() -> None:
    with pytest.raises(ValueError, match="more than"):
        codec.encode_records([r.NoOp()] * (codec.MAX_RECORDS + 1))
