"""Images that are encoded and decoded in steps: the same bytes, however small the steps are."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TypeVar

import msgpack
import pytest

from quorum.errors import MalformedImageError
from quorum.metadata.image import EMPTY, MetadataImage, PartitionImage, TopicImage
from quorum.steps import finished

T = TypeVar("T")
TOPICS = 2_500
"""More than are sorted at once."""


def image() -> MetadataImage:
    """Topics in an order that is not that of their ids, with configs."""
    topics = {}
    for number in range(1, TOPICS):
        topic_id = (number * 7_919 % TOPICS).to_bytes(16, "big")
        partitions = (PartitionImage((1, 2), (1, 2), 1, number, 0),) * (number % 3)
        topics[topic_id] = TopicImage(topic_id, f"topic-{number}", partitions)
    topics.pop(bytes(16), None)
    names = {topic.name: topic.topic_id for topic in topics.values()}
    configs = {("topic", name): {"retention.ms": "5"} for name in names}
    return replace(EMPTY, offset=7, topics=topics, topic_ids=names, configs=configs)


def counted(steps: Generator[None, None, T]) -> tuple[int, T]:
    """The number of steps, and the result."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return number + 1, end.value
        number += 1


@pytest.mark.parametrize("rows", [1, 7, 1_000, 10**6])
def test_the_size_of_the_steps_does_not_show(rows: int) -> None:
    whole = image()
    data = whole.encode()
    steps, encoded = counted(whole.encode_steps(rows))
    assert encoded == data
    read_steps, decoded = counted(MetadataImage.decode_steps(data, rows))
    assert decoded == whole
    for taken in (steps, read_steps):
        assert taken == 1 if rows == 10**6 else taken > 2 * TOPICS // rows


def test_the_bytes_are_one_value_in_canonical_order() -> None:
    data = image().encode()
    value = msgpack.unpackb(data, use_list=False)
    assert msgpack.packb(value) == data
    topics, configs = value[5], value[6]
    assert [row[0] for row in topics] == sorted(image().topics)
    assert [row[:2] for row in configs] == sorted(image().configs)
    assert MetadataImage.decode(data).encode() == data


@pytest.mark.parametrize("cut", [1, 5, 20_000])
def test_what_is_cut_off_or_goes_on_is_no_image(cut: int) -> None:
    data = image().encode()
    with pytest.raises(MalformedImageError):
        finished(MetadataImage.decode_steps(data[:-cut], 10))
    with pytest.raises(MalformedImageError, match="follow"):
        finished(MetadataImage.decode_steps(data + bytes(cut), 10))


def test_a_header_that_announces_what_is_not_there_is_refused() -> None:
    forged = msgpack.packb([2, 0, 0, 0])
    data = b"\x99" + forged[1:] + b"\x90" + b"\xdd\xff\xff\xff\xff"
    with pytest.raises(MalformedImageError):
        MetadataImage.decode(data)
