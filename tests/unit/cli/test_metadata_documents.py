"""Records and images as documents and lines."""

from __future__ import annotations

from dataclasses import replace

from kraft.metadata_view.documents import image_documents, record_document, record_line, value_text
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY
from quorum.metadata.records import (
    BrokerChange,
    Config,
    FeatureLevel,
    PartitionChange,
    ProducerIds,
    UserScramCredential,
    VoterIdentity,
)
from tests.support.metadata_files import BROKERS, ORDERS, TOPIC_ID, TOPIC_ID_TEXT


def line(record: object) -> str:
    return record_line(record_document(record))


def test_a_record_says_its_type_and_fields_with_ids_as_kafka_writes_them() -> None:
    assert record_document(ORDERS[0]) == {"type": "Topic", "name": "orders", "topic_id": TOPIC_ID_TEXT}
    assert line(ORDERS[0]) == f"Topic name=orders topic_id={TOPIC_ID_TEXT}"
    assert line(VoterIdentity(3, b"\0" * 16)) == f"VoterIdentity node_id=3 directory_id={'A' * 22}"
    assert " listeners=[PLAINTEXT://host:9092] rack=null log_dirs=[] fenced=true" in line(BROKERS[0])


def test_fields_that_a_change_leaves_alone_are_left_out_and_a_removed_config_is_not() -> None:
    change = PartitionChange(TOPIC_ID, 0, isr=(), leader=-1)
    assert line(change) == f"PartitionChange topic_id={TOPIC_ID_TEXT} partition=0 isr=[] leader=-1"
    assert line(BrokerChange(1, 7, fenced=False)) == "BrokerChange broker_id=1 broker_epoch=7 fenced=false"
    assert line(Config("topic", "orders", "retention.ms", None)).endswith(" value=null")


def test_offline_replicas_are_shown_where_there_are_some() -> None:
    change = PartitionChange(TOPIC_ID, 0, offline_replicas=(2,))
    shown = f"PartitionChange topic_id={TOPIC_ID_TEXT} partition=0 offline_replicas="
    assert (line(change), line(replace(change, offline_replicas=()))) == (f"{shown}[2]", f"{shown}[]")
    assert record_document(ORDERS[1])["offline_replicas"] == []
    assert "offline_replicas" not in line(ORDERS[1])


def test_lists_that_are_empty_by_default_are_left_out_of_lines_and_an_empty_isr_is_not() -> None:
    document = record_document(ORDERS[1])
    assert document["elr"] == []
    assert "elr" not in record_line(document)
    assert " isr=[] " in record_line(document | {"isr": []})
    assert " elr=[2]" in record_line(document | {"elr": [2]})


def test_values_that_would_break_a_line_are_json() -> None:
    assert value_text("a.b-c_d:1/2") == "a.b-c_d:1/2"
    assert value_text("") == '""'
    assert value_text("two words") == '"two words"'
    assert value_text("a=b\n\x1b[31m") == '"a=b\\n\\u001b[31m"'
    assert value_text("Zürich 8") == '"Zürich 8"'
    assert value_text("\x9b") == '"\\u009b"', "no control character reaches a terminal"
    assert value_text([1, "x y", None]) == '[1,"x y",null]'


def test_an_image_is_shown_as_the_records_that_it_amounts_to() -> None:
    delta = MetadataDelta(EMPTY)
    for record in [*BROKERS, *ORDERS, BrokerChange(1, 7, fenced=False), ProducerIds(1, 7, 2000)]:
        delta.apply(record, 7, 1)
    delta.apply(FeatureLevel("some.feature", 2), 8, 1)
    delta.apply(VoterIdentity(1, b"\1" * 16), 8, 1)
    documents = list(image_documents(delta.finish(8, 1)))
    assert [document["type"] for document in documents] == [
        "FeatureLevel",
        "VoterIdentity",
        "RegisterBroker",
        "RegisterBroker",
        "Topic",
        "Partition",
        "Config",
        "ProducerIds",
    ]
    broker, partition = documents[2], documents[5]
    assert (broker["broker_id"], broker["broker_epoch"], broker["fenced"]) == (1, 7, False)
    assert (partition["topic_id"], partition["partition"], partition["leader"]) == (TOPIC_ID_TEXT, 0, 1)
    assert documents[0] == {"type": "FeatureLevel", "name": "some.feature", "level": 2}
    assert documents[7] == {"type": "ProducerIds", "next_producer_id": 2000}
    assert list(image_documents(EMPTY)) == []


def test_what_passwords_are_proved_with_is_not_shown() -> None:
    credential = UserScramCredential("alice", 1, b"salt", b"stored", b"server", 4096)
    hidden = "salt=(hidden) stored_key=(hidden) server_key=(hidden) iterations=4096"
    assert line(credential) == f"UserScramCredential name=alice mechanism=1 {hidden}".replace(
        "(hidden)", '"(hidden)"'
    )
    delta = MetadataDelta(EMPTY)
    delta.apply(credential, 0, 1)
    assert list(image_documents(delta.finish(0, 1))) == [record_document(credential)]
