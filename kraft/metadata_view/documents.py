"""Metadata as plain documents and as lines: records, and an image as the records that it amounts to.

Pure. It prints what the dataclasses hold, whichever fields a record has, but no secret: a field that is in no repr is
hidden. Ids of 16 bytes are written as Kafka writes
them, 22 characters of base64. `kraft metadata dump` and `shell`, and the console, use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from kraft.protocol.texts import uuid_text
from quorum.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from quorum.metadata.records import ClientQuota, Listener, Record

Document = dict[str, Any]
"""An object of JSON."""
HIDDEN = "(hidden)"
_PLAIN = re.compile(r"[\w.:/@<>+*-]+")
_LISTENER = set(Listener._fields)
_EMPTY_BY_DEFAULT = {
    (kind.__name__, field.name) for kind in get_args(Record) for field in fields(kind) if field.default == ()
}


def plain(value: Any) -> Any:
    """A field's value as JSON knows it: tuples are arrays, named tuples and dataclasses objects."""
    if isinstance(value, bytes):
        return uuid_text(value)
    if hasattr(value, "_asdict"):
        return {name: plain(element) for name, element in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [plain(element) for element in value]
    if is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name)) if field.repr else HIDDEN for field in fields(value)
        }
    return value


def record_document(record: Record) -> Document:
    """A record: its type, and its fields but those that say "unchanged" (None by default)."""
    document: Document = {"type": type(record).__name__}
    for field in fields(record):
        value = getattr(record, field.name)
        if value is not None or field.default is not None:
            document[field.name] = plain(value) if field.repr else HIDDEN
    return document


def image_documents(image: MetadataImage) -> Iterator[Document]:
    """What the image holds, in the shape of records and in the order in which they could be applied.

    A broker's also says its `broker_epoch`, which a record takes from its offset.
    """
    for name in sorted(image.features):
        yield {"type": "FeatureLevel", "name": name, "level": image.features[name]}
    for node_id in sorted(image.voters):
        yield {
            "type": "VoterIdentity",
            "node_id": node_id,
            "directory_id": uuid_text(image.voters[node_id]),
        }
    for acl in sorted(image.acls):
        yield {"type": "AccessControlEntry", "acl": plain(acl)}
    for broker_id in sorted(image.brokers):
        yield broker_document(image.brokers[broker_id])
    for name in sorted(image.topic_ids):
        topic = image.topics[image.topic_ids[name]]
        yield {"type": "Topic", "name": topic.name, "topic_id": uuid_text(topic.topic_id)}
        for number in range(len(topic.partitions)):
            yield partition_document(topic, number)
    for resource_type, resource_name in sorted(image.configs):
        values = image.configs[resource_type, resource_name]
        for key in sorted(values):
            yield {
                "type": "Config",
                "resource_type": resource_type,
                "resource_name": resource_name,
                "key": key,
                "value": values[key],
            }
    for name, mechanism in sorted(image.scram_credentials):
        credential = plain(image.scram_credentials[name, mechanism])
        yield {"type": "UserScramCredential", "name": name, "mechanism": mechanism, **credential}
    for entity in sorted(image.client_quotas):
        quotas = image.client_quotas[entity]
        for key in sorted(quotas):
            yield record_document(ClientQuota(entity, key, quotas[key]))
    if image.next_producer_id:
        yield {"type": "ProducerIds", "next_producer_id": image.next_producer_id}


def broker_document(broker: BrokerImage) -> Document:
    """A broker's registration, as it stands now."""
    document: Document = plain(broker)
    epoch = document.pop("epoch")
    return {
        "type": "RegisterBroker",
        "broker_id": document.pop("broker_id"),
        "broker_epoch": epoch,
    } | document


def partition_document(topic: TopicImage, number: int) -> Document:
    """A partition, as it stands now."""
    partition: PartitionImage = topic.partitions[number]
    return {
        "type": "Partition",
        "topic_id": uuid_text(topic.topic_id),
        "partition": number,
        **plain(partition),
    }


def record_line(document: Document) -> str:
    """`Type field=value …` for people, without lists that are empty as they are by default."""
    kind = document["type"]
    shown = (
        f"{name}={value_text(value)}"
        for name, value in document.items()
        if name != "type" and not (value == [] and (kind, name) in _EMPTY_BY_DEFAULT)
    )
    return " ".join((kind, *shown))


def value_text(value: Any) -> str:
    """One value within a line; a text with spaces or quotes in it is written as JSON."""
    if isinstance(value, list):
        return f"[{','.join(map(value_text, value))}]"
    if isinstance(value, dict) and value.keys() == _LISTENER:
        protocol = "" if value["name"] == value["security_protocol"] else f"({value['security_protocol']})"
        return value_text(f"{value['name']}://{value['host']}:{value['port']}") + protocol
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value, separators=(",", ":"))
