"""The common part of the encoder and decoder generators: lines of Python, names, constants, size bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from kraft.protocol.schema import Array, Binary, Field, FieldType, Fixed, Fresh, Message, Structure, Text


class Source:
    """A function's source while it is written, and the objects behind its names."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block below the line `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A local name that is used nowhere else in this source."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """A name for an object outside the source; one object has one name."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.namespace[name] = value
        return name

    def struct(self, codes: str) -> Struct:
        """The big-endian `Struct` of these codes."""
        return Struct(">" + codes)

    def fields(self, of: type[Message]) -> Iterator[tuple[str, Field]]:
        """The fields that this version has outside the section of tagged fields, in wire order."""
        for name, field in of.FIELDS:
            if field.versions.includes(self.version) and not field.tagged.includes(self.version):
                yield name, field

    def tagged_fields(self, of: type[Message]) -> list[tuple[int, list[tuple[str, Field]]]]:
        """The tags of this version in ascending order, each with its field, or with those of its struct."""
        found: dict[int, list[tuple[str, Field]]] = {}
        for name, field in of.FIELDS:
            if field.tag is not None and self.flexible and field.tagged.includes(self.version):
                found.setdefault(field.tag, []).append((name, field))
        return sorted(found.items())

    def nullable(self, field: Field) -> bool:
        return field.nullable.includes(self.version)

    def min_bytes(self, kind: FieldType, *, nullable: bool = False) -> int:
        """The fewest bytes of a value, which each element of an array is charged."""
        match kind:
            case Fixed():
                return kind.size_bytes
            case Text():
                return 1 if self.flexible else 2
            case Binary() | Array():
                return 1 if self.flexible else 4
            case Structure() if nullable:
                return 1
            case Structure():
                fields = [(field.type, self.nullable(field)) for _, field in self.fields(kind.of)]
                total = sum(self.min_bytes(inner, nullable=null) for inner, null in fields)
                return max(1, total + self.flexible)

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Executes the source and returns the function of this name; `title` appears in tracebacks."""
        code = compile("\n".join(self.lines), f"<{title}>", "exec")
        exec(code, self.namespace)
        result: Callable[..., Any] = self.namespace[function]
        return result


def default_value(field: Field) -> object:
    """The field's default, made anew where it is mutable."""
    return field.default.make() if isinstance(field.default, Fresh) else field.default


def has_record_sets(of: type[Message]) -> bool:
    """Whether the message holds bytes that pass without a copy, at any depth."""
    return any(_is_record_set(field.type) for _, field in of.FIELDS)


def _is_record_set(kind: FieldType) -> bool:
    match kind:
        case Binary(view):
            return view
        case Array(element):
            return _is_record_set(element)
        case Structure(of):
            return has_record_sets(of)
        case _:
            return False
