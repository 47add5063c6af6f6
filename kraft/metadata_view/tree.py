"""A metadata image as a tree of folders and values, the way a file system shows them.

Pure and lazy: a folder makes its contents when somebody looks into it, so that a large image costs nothing until then.
`kraft metadata shell` walks over these paths, the console shows them:

    /brokers/ID/{registration,epoch,isFenced,inControlledShutdown}
    /topics/by-name/NAME/{id,name} and /topics/by-name/NAME/PARTITION/data
    /topics/by-id/ID/…      the same topics
    /configs/{topic,broker}/NAME/KEY      the defaults of all brokers are those of `<default>`
    /scram/MECHANISM/USER
    /acls/RESOURCE_TYPE/NAME/NUMBER
    /clientQuotas/ENTITY/KEY
    /features/NAME, /voters/ID, /producerIds/nextProducerId
    /local/{offset,epoch,source}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, TypeAlias

from kraft.metadata_view.documents import broker_document, partition_document, plain
from kraft.protocol.texts import uuid_text
from quorum.metadata.image import BrokerImage, MetadataImage, TopicImage
from quorum.metadata.records import BROKER_RESOURCE, SCRAM_MECHANISM_NAMES, TOPIC_RESOURCE

DEFAULT_RESOURCE = "<default>"
"""Stands for the empty resource name, which would be no name of a file."""


class TreeValue:
    """A leaf: something that JSON can hold."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


class TreeFolder:
    """Named nodes, in the order in which they are listed. `make` is called once, when they are needed; `size` tells
    how many they are without it."""

    def __init__(self, make: Callable[[], Mapping[str, TreeNode]], size: int | None = None) -> None:
        self._make = make
        self._size = size

    @property
    def size(self) -> int:
        return len(self.children) if self._size is None else self._size

    @cached_property
    def children(self) -> Mapping[str, TreeNode]:
        return self._make()


TreeNode: TypeAlias = TreeFolder | TreeValue


def metadata_tree(image: MetadataImage, source: str) -> TreeFolder:
    """The root of an image that was read from `source`."""
    children = {
        "brokers": TreeFolder(lambda: {str(b): _broker(image.brokers[b]) for b in sorted(image.brokers)}),
        "topics": _folder(
            {
                "by-id": TreeFolder(lambda: _topics(image, by_name=False)),
                "by-name": TreeFolder(lambda: _topics(image, by_name=True)),
            }
        ),
        "configs": _folder(
            {
                resource_type: TreeFolder(partial(_configs, image, resource_type))
                for resource_type in _resource_types(image)
            }
        ),
        "features": _values((name, image.features[name]) for name in sorted(image.features)),
        "voters": _values((str(voter), uuid_text(image.voters[voter])) for voter in sorted(image.voters)),
        "scram": TreeFolder(lambda: _users(image)),
        "acls": TreeFolder(lambda: _acls(image)),
        "clientQuotas": TreeFolder(lambda: _quotas(image)),
        "producerIds": _values([("nextProducerId", image.next_producer_id)]),
        "local": _values([("offset", image.offset), ("epoch", image.epoch), ("source", source)]),
    }
    return _folder(children)


def walk(node: TreeNode, path: str) -> Iterator[tuple[str, TreeNode]]:
    """The node and everything below it, with their paths; parents come first."""
    yield path, node
    if isinstance(node, TreeFolder):
        for name, child in node.children.items():
            yield from walk(child, f"{path.rstrip('/')}/{name}")


def _folder(children: Mapping[str, TreeNode]) -> TreeFolder:
    return TreeFolder(lambda: children)


def _values(pairs: Iterable[tuple[str, Any]]) -> TreeFolder:
    return _folder({name: TreeValue(content) for name, content in pairs})


def _users(image: MetadataImage) -> dict[str, TreeNode]:
    """As in Kafka's shell: by mechanism, then by name."""
    found: dict[str, dict[str, TreeNode]] = {}
    for name, mechanism in sorted(image.scram_credentials):
        credential = TreeValue(plain(image.scram_credentials[name, mechanism]))
        found.setdefault(SCRAM_MECHANISM_NAMES[mechanism], {})[name] = credential
    return {mechanism: _folder(users) for mechanism, users in sorted(found.items())}


def _acls(image: MetadataImage) -> dict[str, TreeNode]:
    found: dict[str, dict[str, dict[str, TreeNode]]] = {}
    for one in sorted(image.acls):
        of_name = found.setdefault(str(one.resource_type), {}).setdefault(one.resource_name, {})
        of_name[str(len(of_name))] = TreeValue(plain(one))
    return {
        resource_type: _folder({name: _folder(acls) for name, acls in names.items()})
        for resource_type, names in found.items()
    }


def _quotas(image: MetadataImage) -> dict[str, TreeNode]:
    """`user=NAME,client-id=ID`; an entity of a type without a name is the default of the type, as in Kafka."""
    return {
        ",".join(f"{kind}={name or DEFAULT_RESOURCE}" for kind, name in entity): _values(
            sorted(values.items())
        )
        for entity, values in sorted(image.client_quotas.items())
    }


def _broker(broker: BrokerImage) -> TreeFolder:
    return TreeFolder(
        lambda: {
            "registration": TreeValue(broker_document(broker)),
            "epoch": TreeValue(broker.epoch),
            "isFenced": TreeValue(broker.fenced),
            "inControlledShutdown": TreeValue(broker.in_controlled_shutdown),
        }
    )


def _topics(image: MetadataImage, *, by_name: bool) -> dict[str, TreeNode]:
    topics = image.topics.values()
    named = ((topic.name if by_name else uuid_text(topic.topic_id), topic) for topic in topics)
    return {name: _topic(topic) for name, topic in sorted(named, key=lambda pair: pair[0])}


def _topic(topic: TopicImage) -> TreeFolder:
    own: dict[str, TreeNode] = {
        "id": TreeValue(uuid_text(topic.topic_id)),
        "name": TreeValue(topic.name),
    }
    count = len(topic.partitions)
    return TreeFolder(
        lambda: own | {str(number): _partition(topic, number) for number in range(count)}, len(own) + count
    )


def _partition(topic: TopicImage, number: int) -> TreeFolder:
    return TreeFolder(lambda: {"data": TreeValue(partition_document(topic, number))})


def _resource_types(image: MetadataImage) -> list[str]:
    return sorted({TOPIC_RESOURCE, BROKER_RESOURCE, *(resource_type for resource_type, _ in image.configs)})


def _configs(image: MetadataImage, resource_type: str) -> dict[str, TreeNode]:
    names = sorted(name for kind, name in image.configs if kind == resource_type)
    return {
        name or DEFAULT_RESOURCE: _values(sorted(image.configs[resource_type, name].items()))
        for name in names
    }
