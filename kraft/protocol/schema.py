"""The declaration of messages: a class whose body is the table of its fields.

    @message
    class CreatePartitionsTopic(Message):
        name: str = string("0+")
        count: int = int32("0+")
        assignments: list[...] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")

The names are Kafka's in snake_case; "0+", "3-7" and "5" are the versions that have the field.
`message` makes of it a class with slots, a constructor with the fields' defaults, equality and a
repr; `kraft.protocol.compiler` makes an encoder and a decoder for each version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, cast, dataclass_transform

from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import ZERO_UUID
from kraft.protocol.texts import MESSAGE_CHARACTERS

LAST_VERSION = 32767


class Versions(NamedTuple):
    """A range of versions, both ends included; empty if `last` is below `first`."""

    first: int
    last: int

    def includes(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Reads "3+", "3-7", "5"; None is the empty range."""
        if text is None:
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


class Fixed(NamedTuple):
    """A value of fixed size, with its code in the `struct` module."""

    code: str
    size_bytes: int


class Text(NamedTuple):
    """A string in UTF-8, cut to so many characters when it is sent."""

    characters: int | None = None


class Binary(NamedTuple):
    """Bytes: decoded as `bytes`, or without a copy as a memoryview (a record set)."""

    view: bool


class Structure(NamedTuple):
    """Another message's fields."""

    of: type[Message]


class Array(NamedTuple):
    """Elements of one type."""

    of: FieldType


FieldType = Fixed | Text | Binary | Structure | Array

BOOLEAN = Fixed("?", 1)
INT8 = Fixed("b", 1)
INT16 = Fixed("h", 2)
UINT16 = Fixed("H", 2)
INT32 = Fixed("i", 4)
INT64 = Fixed("q", 8)
FLOAT64 = Fixed("d", 8)
UUID = Fixed("16s", 16)
STRING = Text()
SENTENCE = Text(MESSAGE_CHARACTERS)


class Fresh:
    """A default that is made anew for each message: an empty list, or a struct of defaults."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


class Field(NamedTuple):
    """One field of a message: its type, its versions, and its form there.

    `tag` is None, or the number under which the field appears among the tagged fields in the versions
    `tagged`. Neighbours with one number are the fields of one struct there. A field that a version lacks is
    dropped there if it is `ignorable`; otherwise a value other than the default is an error.
    """

    type: FieldType
    versions: Versions
    nullable: Versions
    tag: int | None
    default: object
    ignorable: bool
    tagged: Versions


class Message:
    """Base of all messages: equality and repr over the fields, which `message` puts into slots."""

    __slots__ = ()
    NAMES: ClassVar[tuple[str, ...]] = ()
    """The fields' names, in the order of the constructor's parameters."""
    FIELDS: ClassVar[tuple[tuple[str, Field], ...]] = ()
    """The table."""
    API_KEY: ClassVar[ApiKey]
    """Set on requests and responses, not on the structs inside."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.NAMES)

    __hash__ = None  # type: ignore[assignment]  # messages are mutable

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.NAMES)
        return f"{type(self).__name__}({fields})"


M = TypeVar("M", bound=Message)
_UNSET = object()


@dataclass_transform()
def message(cls: type[M]) -> type[M]:
    """Class decorator: slots and a constructor from the annotated fields, in their order."""
    fields = [name for name, kind in cls.__annotations__.items() if not str(kind).startswith("ClassVar")]
    body = dict(cls.__dict__)
    for name in ("__dict__", "__weakref__", *fields):
        body.pop(name, None)
    table = {name: getattr(cls, name) for name in fields}
    if not all(isinstance(field, Field) for field in table.values()):
        raise ProtocolError(f"{cls.__name__} has a field that is not declared")
    body["FIELDS"] = tuple(table.items())
    body["NAMES"] = body["__slots__"] = tuple(fields)
    body["__init__"] = _constructor({name: field.default for name, field in table.items()})
    rebuilt: Any = type(cls.__name__, cls.__bases__, body)
    return cast("type[M]", rebuilt)


def _constructor(defaults: dict[str, object]) -> Callable[..., None]:
    """An `__init__` that takes the fields by position or name."""
    namespace: dict[str, Any] = {"unset": _UNSET}
    parameters, lines = ["self"], []
    for name, default in defaults.items():
        if isinstance(default, Fresh):
            namespace[f"make_{name}"] = default.make
            parameters.append(f"{name}=unset")
            lines.append(f"    self.{name} = make_{name}() if {name} is unset else {name}")
        else:
            namespace[f"default_{name}"] = default
            parameters.append(f"{name}=default_{name}")
            lines.append(f"    self.{name} = {name}")
    source = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or "    pass")
    exec(source, namespace)
    init: Callable[..., None] = namespace["__init__"]
    return init


EMPTY_LIST: Any = Fresh(list)
"""The default of an array field."""


def _field(
    kind: FieldType,
    versions: str,
    nullable: str | None,
    tag: int | None,
    default: object,
    ignorable: bool,
    tagged: str | None = None,
) -> Any:
    in_tag = Versions.parse(None if tag is None else tagged or versions)
    return Field(kind, Versions.parse(versions), Versions.parse(nullable), tag, default, ignorable, in_tag)


def boolean(versions: str, *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> Any:
    return _field(BOOLEAN, versions, None, tag, default, ignorable)


def int8(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return _field(INT8, versions, None, tag, default, ignorable)


def int16(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return _field(INT16, versions, None, tag, default, ignorable)


def uint16(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return _field(UINT16, versions, None, tag, default, ignorable)


def int32(
    versions: str,
    *,
    default: int = 0,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """A number; `tagged` are the versions in which it has its tag, if not all."""
    return _field(INT32, versions, None, tag, default, ignorable, tagged)


def int64(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return _field(INT64, versions, None, tag, default, ignorable)


def float64(versions: str, *, default: float = 0.0, tag: int | None = None, ignorable: bool = False) -> Any:
    return _field(FLOAT64, versions, None, tag, default, ignorable)


def uuid(versions: str, *, tag: int | None = None, ignorable: bool = False) -> Any:
    """16 bytes; the default is all zero."""
    return _field(UUID, versions, None, tag, ZERO_UUID, ignorable)


def string(
    versions: str,
    *,
    nullable: str | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Text; `nullable` are the versions in which None may be sent."""
    return _field(STRING, versions, nullable, tag, default, ignorable)


def sentence(versions: str, *, ignorable: bool = False) -> Any:
    """Text for people, None by default. It is cut to `MESSAGE_CHARACTERS` when it is sent: its quotations may be too
    long for a string that is not compact."""
    return _field(SENTENCE, versions, versions, None, None, ignorable)


def binary(
    versions: str,
    *,
    nullable: str | None = None,
    default: bytes | None = b"",
    view: bool = False,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Bytes. With `view` they are a record set: decoded as a view of the message, encoded without a copy, and
    sent from files where the value is a sequence of `Slice`."""
    return _field(Binary(view), versions, nullable, tag, default, ignorable)


def struct(
    of: type[Message],
    versions: str,
    *,
    nullable: str | None = None,
    default: object = _UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A nested message; the default is one with all its defaults, or None if so given."""
    return _field(
        Structure(of), versions, nullable, tag, Fresh(of) if default is _UNSET else default, ignorable
    )


def array(
    of: FieldType | type[Message],
    versions: str,
    *,
    nullable: str | None = None,
    default: object = EMPTY_LIST,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A list of values of one type or of nested messages; the default is empty, or None if so given."""
    kind = Structure(of) if isinstance(of, type) else of
    return _field(Array(kind), versions, nullable, tag, default, ignorable)
