"""What declaring a message means: versions, nulls, tags, defaults, and what is refused."""

from __future__ import annotations

import pytest

from kraft.protocol import ProtocolError
from kraft.protocol.compiler import compile_codec
from kraft.protocol.primitives import Encoded, uvarint, varint_tail
from kraft.protocol.schema import (
    BOOLEAN,
    INT32,
    STRING,
    UUID,
    Message,
    Versions,
    array,
    binary,
    boolean,
    float64,
    int8,
    int32,
    int64,
    message,
    sentence,
    string,
    struct,
    uint16,
    uuid,
)
from kraft.protocol.texts import MESSAGE_CHARACTERS


@message
class Point(Message):
    x: int = int32("0+")
    y: int = int32("1+", default=-1, ignorable=True)
    tag: str = string("2+", tag=3)


@message
class Everything(Message):
    """Flexible from version 2 on."""

    flag: bool = boolean("0+")
    tiny: int = int8("0+")
    port: int = uint16("0+")
    ratio: float = float64("0+")
    name: str = string("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    data: bytes = binary("0+")
    view: bytes | memoryview | None = binary("0+", nullable="0+", default=None, view=True)
    identity: bytes = uuid("1+")
    points: list[Point] = array(Point, "0+")
    maybe_points: list[Point] | None = array(Point, "1+", nullable="1+", default=None)
    names: list[str] = array(STRING, "0+")
    numbers: list[int] = array(INT32, "0+")
    flags: list[bool] = array(BOOLEAN, "1+")
    ids: list[bytes] = array(UUID, "1+")
    origin: Point = struct(Point, "1+")
    maybe_point: Point | None = struct(Point, "1+", nullable="1+", default=None)
    epoch: int = int64("2+", tag=0, default=-1, ignorable=True)
    leader: Point = struct(Point, "2+", tag=1, ignorable=True)
    hints: list[Point] = array(Point, "2+", tag=7, ignorable=True)
    note: str | None = string("2+", nullable="2+", default=None, tag=200, ignorable=True)


def encode(value: Message, version: int) -> bytes:
    parts, size_bytes = _encode(value, version)
    assert sum(len(part) for part in parts) == size_bytes  # type: ignore[arg-type]
    return b"".join(parts)  # type: ignore[arg-type]


def _encode(value: Message, version: int) -> Encoded:
    return compile_codec(type(value), version, version >= 2).encode(value)


def decode(of: type[Message], version: int, data: bytes) -> Message:
    decoded, end = compile_codec(of, version, version >= 2).decode(b"\xaa" + data + b"\xbb", 1)
    assert end == len(data) + 1
    assert isinstance(decoded, of)
    return decoded


def filled(version: int) -> Everything:
    points = [Point(1, 2), Point(3, 4)] if version else [Point(1), Point(3)]
    value = Everything(
        flag=True,
        tiny=-5,
        port=65_535,
        ratio=0.25,
        name="ü" * 100,
        data=b"data",
        view=b"view" * 100,
        points=points,
        names=["a", "", "x" * 300],
        numbers=list(range(-20, 20)),
    )
    if version >= 1:
        value.rack = "rack"
        value.identity = bytes(range(16))
        value.maybe_points = [Point(5, 6)]
        value.flags = [True, False] * 100
        value.ids = [bytes([n]) * 16 for n in range(40)]
        value.origin = Point(7, 8)
        value.maybe_point = Point(9, 10)
    if version >= 2:
        value.points[1].tag = "tagged"
        value.epoch = 11
        value.leader = Point(12, 13, "nested")
        value.hints = [Point(14), Point(15, tag="x")]
        value.note = "note"
    return value


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_is_written_is_read_again(version: int) -> None:
    for value in (Everything(), filled(version)):
        assert decode(Everything, version, encode(value, version)) == value


def test_a_legacy_message_byte_for_byte() -> None:
    value = Everything(name="ab", numbers=[1, 2], points=[Point(3)], names=["c"])
    assert encode(value, 0).hex(" ") == (
        "00 00 00 00 00 00 00 00 00 00 00 00 "  # flag, tiny, port, ratio
        "00 02 61 62 00 00 00 00 ff ff ff ff "  # name, data, view
        "00 00 00 01 00 00 00 03 "  # points
        "00 00 00 01 00 01 63 00 00 00 02 00 00 00 01 00 00 00 02"  # names, numbers
    )


def test_tagged_fields_byte_for_byte() -> None:
    assert encode(Point(1, 2), 2).hex(" ") == "00 00 00 01 00 00 00 02 00"
    assert encode(Point(1, 2, "ab"), 2).hex(" ") == "00 00 00 01 00 00 00 02 01 03 03 03 61 62"


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    value = Everything(note="n", hints=[Point()], epoch=5)
    data = encode(value, 2)
    section = data[data.rindex(bytes.fromhex("03 00 08 0000000000000005")) :]
    assert section.hex(" ") == (
        "03 00 08 00 00 00 00 00 00 00 05 07 0a 02 00 00 00 00 ff ff ff ff 00 c8 01 02 02 6e"
    )


def test_unknown_tagged_fields_are_skipped_and_known_ones_read_in_any_order() -> None:
    data = bytes.fromhex("00000001 00000002 03 09 02 aabb 03 02 02 61 8001 00")
    assert decode(Point, 2, data) == Point(1, 2, "a")


def test_an_unknown_tagged_field_that_is_longer_than_the_rest() -> None:
    with pytest.raises(ProtocolError, match="tagged field 9 needs at least 3 bytes, but 2 remain"):
        compile_codec(Point, 2, True).decode(bytes.fromhex("00000001 00000002 01 09 03 aabb"), 0)


@pytest.mark.parametrize("tagged", ["01 03 02 03 61", "01 03 03 02 61 00", "01 03 00", "01 03 7f 02 61"])
def test_a_tagged_field_that_does_not_fill_its_size(tagged: str) -> None:
    with pytest.raises(ProtocolError):
        decode(Point, 2, bytes.fromhex("00000001 00000002" + tagged))


def test_a_field_that_the_version_lacks() -> None:
    assert encode(Point(1, 2), 0) == b"\0\0\0\1"
    assert decode(Point, 0, b"\0\0\0\1") == Point(1, -1)
    with pytest.raises(ProtocolError, match=r"Point.tag cannot be sent in version 1"):
        encode(Point(tag="x"), 1)
    with pytest.raises(ProtocolError, match=r"Everything.flags cannot be sent in version 0"):
        encode(Everything(flags=[True]), 0)


def test_null_where_none_is_allowed() -> None:
    for version, value in (
        (1, Everything(name=None)),
        (2, Everything(points=None)),
        (2, Everything(data=None)),
    ):  # type: ignore[arg-type]
        with pytest.raises(ProtocolError, match=rf"Everything v{version}: \w+ must not be null"):
            encode(value, version)
    value = encode(Everything(), 2)
    position = 1 + 1 + 2 + 8
    assert value[position] == 1  # an empty name
    with pytest.raises(ProtocolError, match=r"Everything.name must not be null"):
        decode(Everything, 2, value[:position] + b"\0" + value[position + 1 :])


def test_values_that_do_not_fit() -> None:
    for value in (Point(2**31), Point("1"), Point(None)):  # type: ignore[arg-type]
        with pytest.raises(ProtocolError, match="Point v1 cannot be encoded"):
            encode(value, 1)
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode(Everything(name="x" * 32_768), 1)
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode(Everything(name="\ud800"), 1)
    with pytest.raises(ProtocolError, match="a UUID has 16 bytes, not 5"):
        encode(Everything(identity=b"short"), 1)
    with pytest.raises(ProtocolError, match="an array element must not be null"):
        encode(Everything(names=[None]), 1)  # type: ignore[list-item]
    with pytest.raises(ProtocolError, match="a UUID has 16 bytes, not 17"):
        encode(Everything(ids=[bytes(17)]), 1)


@message
class Refusal(Message):
    error_message: str | None = sentence("0+")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("character", ["x", "€"])
def test_a_sentence_is_sent_cut(version: int, character: str) -> None:
    """It may quote what was sent in a longer form, and more of it than its own form can hold."""
    data = encode(Refusal(character * 40_000), version)
    cut = character * (MESSAGE_CHARACTERS - 1) + "…"
    assert decode(Refusal, version, data) == Refusal(cut)
    for text in (None, "", character * MESSAGE_CHARACTERS):
        assert decode(Refusal, version, encode(Refusal(text), version)) == Refusal(text)


@pytest.mark.parametrize("name", ["x" * 32_767, "ü" * 16_383 + "x"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_longest_strings(name: str, version: int) -> None:
    for value in (
        Everything(name=name),
        Everything(names=[name]),
        Everything(rack=name if version else None),
    ):
        assert decode(Everything, version, encode(value, version)) == value


@pytest.mark.parametrize("field", ["name", "names", "rack", "note"])
def test_a_string_that_is_too_long_is_neither_written_nor_read(field: str) -> None:
    """Bytes may be as long as they are."""
    long = "x" * 32_768
    with pytest.raises(ProtocolError, match="32768 bytes, above the limit of 32767"):
        encode(Everything(**{field: [long] if field == "names" else long}), 2)
    just = "x" * 32_767
    data = encode(Everything(**{field: [just] if field == "names" else just}), 2)
    length = uvarint(32_768)
    assert data.count(length) == 1
    with pytest.raises(ProtocolError, match=f"{field} has 32768 bytes, above the limit of 32767"):
        decode(Everything, 2, data.replace(length, uvarint(32_769)) + b"x")
    value = Everything(data=b"x" * 32_768, view=b"x" * 32_768)
    assert decode(Everything, 2, encode(value, 2)) == value


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(ProtocolError, match="Point v2 is malformed"):
        decode(Point, 2, bytes.fromhex("00000001 00000002 01 03 02 02 ff"))


def test_views_are_not_copied() -> None:
    data = encode(Everything(view=b"abc", data=b"def"), 1)
    decoded, _ = compile_codec(Everything, 1, False).decode(data, 0)
    assert isinstance(decoded.view, memoryview)
    assert decoded.view.obj is data
    assert isinstance(decoded.data, bytes)


@message
class Moved(Message):
    """Flexible from version 2 on, from where `number` and `epoch` are a struct under one tag."""

    number: int = int32("0+", default=-1, tag=1, tagged="2+")
    epoch: int = int32("2+", default=-1, tag=1, ignorable=True)
    hint: Point | None = struct(Point, "2+", tag=0, default=None, ignorable=True)


@pytest.mark.parametrize(
    ("value", "version", "data"),
    [
        (Moved(5), 0, "00000005"),
        (Moved(), 2, "00"),
        (Moved(5), 2, "01 01 09 00000005 ffffffff 00"),
        (Moved(5, 7, Point(1, 2)), 2, "02 00 09 00000001 00000002 00 01 09 00000005 00000007 00"),
    ],
)
def test_fields_that_move_under_one_tag_are_a_struct_there(value: Moved, version: int, data: str) -> None:
    assert encode(value, version) == bytes.fromhex(data)
    assert decode(Moved, version, bytes.fromhex(data)) == value


def test_an_optional_struct_of_defaults_is_absent() -> None:
    assert encode(Moved(hint=Point()), 2) == encode(Moved(), 2) == b"\0"


def test_defaults_are_not_shared() -> None:
    first, second = Everything(), Everything()
    first.points.append(Point())
    first.origin.x = 5
    assert second.points == []
    assert second.origin == Point()
    decoded = decode(Everything, 0, encode(Everything(), 0))
    assert isinstance(decoded, Everything)
    decoded.flags.append(True)
    decoded.origin.x = 6
    again = decode(Everything, 0, encode(Everything(), 0))
    assert again == Everything()


def test_messages_are_values() -> None:
    assert Point(1) == Point(x=1)
    assert Point(1) != Point(2)
    assert Point() != Everything()
    assert repr(Point(1, 2)) == "Point(x=1, y=2, tag='')"
    with pytest.raises(TypeError):
        hash(Point())
    with pytest.raises(AttributeError):
        Point().z = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Point(z=1)  # type: ignore[call-arg]


def test_a_field_with_a_plain_default_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Mixed has a field that is not declared"):

        @message
        class Mixed(Message):
            x: int = int32("0+")
            y: int = 5


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 4, 99], [2]), ("3-5", [3, 5], [2, 6]), ("3", [3], [2, 4]), (None, [], [0])],
)
def test_versions(text: str | None, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(versions.includes(version) for version in inside)
    assert not any(versions.includes(version) for version in outside)


@pytest.mark.parametrize(
    "value", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**31 - 1, 2**35 - 1]
)
def test_varints(value: int) -> None:
    data = uvarint(value)
    assert all(byte > 127 for byte in data[:-1])
    assert data[-1] < 128
    if len(data) > 1:
        assert varint_tail(data, 1, data[0]) == (value, len(data))


def test_a_varint_without_an_end() -> None:
    with pytest.raises(ProtocolError, match="longer than 5 bytes"):
        varint_tail(b"\xff" * 9, 1, 0xFF)
