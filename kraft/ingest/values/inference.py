"""The fields that JSON documents turn out to have, and how several slices' findings become one schema.

A whole number is a BIGINT, or a DOUBLE where it does not fit or others are fractions; text is a STRING, a time too; a
field that was always null or empty is none yet. A type that the table has never changes: what does not fit it is for
`_error`. Among findings of one cut the one of the lowest topic, partition and offset goes first, so that the outcome
does not depend on which worker was faster. A field whose name differs from another only in case is not added, nor one
beyond MAX_FIELDS. Pure: workers infer (`json_fields.py`), the driver merges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kraft.ingest.table_columns import MAX_NAME_CHARS, escaped, unescaped
from kraft.spark.slice_reader import PartitionSlice

MAX_FIELDS = 1000
"""Of a schema, those inside of others counted too."""
MIN_BIGINT, MAX_BIGINT = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Leaf:
    """A type without fields. A `fixed` one is the table's."""

    type: pa.DataType
    fixed: bool = False
    takes_scalars: bool = False
    """A STRING that holds numbers and booleans, too, as JSON writes them."""


@dataclass
class ListOf:
    element: Kind = None


@dataclass
class Struct:
    """An object. Only `add` adds fields."""

    fields: dict[str, Kind] = field(default_factory=dict)
    _lowered: set[str] = field(default_factory=set)

    def add(self, name: str, kind: Kind) -> None:
        self.fields[name] = kind
        self._lowered.add(name.lower())

    def has_alike(self, name: str) -> bool:
        """Whether another field's name differs from this one only in case, or not at all."""
        return name.lower() in self._lowered


Kind = Leaf | ListOf | Struct | None
"""None: not known yet."""

BOOLEAN, BIGINT, DOUBLE, STRING = (Leaf(kind) for kind in (pa.bool_(), pa.int64(), pa.float64(), pa.string()))


class Inference:
    """Grows a struct by the documents that it is shown; `widened` counts the BIGINTs that became DOUBLEs."""

    def __init__(self, struct: Struct) -> None:
        self.struct = struct
        self.widened = 0
        self._count = _count(struct)

    def show(self, document: Mapping[str, Any]) -> None:
        self._fields(self.struct, document)

    def _fields(self, struct: Struct, document: Mapping[str, Any]) -> None:
        for name, value in document.items():
            if name in struct.fields:
                struct.fields[name] = self._grown(struct.fields[name], value)
            elif self._count < MAX_FIELDS and can_be_added(struct, name):
                self._count += 1
                struct.add(name, self._grown(None, value))

    def _grown(self, kind: Kind, value: Any) -> Kind:
        if value is None:
            return kind
        if isinstance(value, dict):
            kind = Struct() if kind is None else kind
            if isinstance(kind, Struct):
                self._fields(kind, value)
            return kind
        if isinstance(value, list):
            kind = ListOf() if kind is None else kind
            if isinstance(kind, ListOf):
                for element in value:
                    kind.element = self._grown(kind.element, element)
            return kind
        found = _leaf(value)
        if kind is None:
            return found
        if kind == BIGINT and found == DOUBLE:
            self.widened += 1
            return DOUBLE
        return kind


def can_be_added(struct: Struct, name: str) -> bool:
    if not name or len(escaped(name)) > MAX_NAME_CHARS or struct.has_alike(name):
        return False
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def merge_schemas(
    table: pa.Schema, proposals: Sequence[tuple[PartitionSlice, pa.Schema]]
) -> tuple[pa.Schema, list[int]]:
    """One schema of the table's and those that slices wrote, and which of these must be written again under it.

    The merged schema has the table's columns first. Until no slice is left, write those named again with the merged
    schema, and merge anew: each time fields are added, or none.
    """
    merged = struct_of(table, fixed=True)
    in_order = sorted(proposals, key=lambda one: (one[0].topic, one[0].partition, one[0].start))
    for _, schema in in_order:
        join(merged, struct_of(schema))
    fields = [pa.field(name, type_of(kind)) for name, kind in merged.fields.items() if not is_unknown(kind)]
    again = [
        index
        for index, (_, schema) in enumerate(proposals)
        if not all(
            one.name in merged.fields and _holds(type_of(merged.fields[one.name]), one.type) for one in schema
        )
    ]
    return pa.schema(fields), again


def struct_of(schema: pa.Schema | pa.StructType, *, fixed: bool = False) -> Struct:
    struct = Struct()
    for one in schema:
        struct.add(one.name, kind_of(one.type, fixed=fixed))
    return struct


def kind_of(kind: pa.DataType, *, fixed: bool = False) -> Kind:
    types = pa.types
    if types.is_null(kind):
        return None
    if types.is_struct(kind):
        return struct_of(kind.fields, fixed=fixed)
    if types.is_list(kind) or types.is_large_list(kind):
        return ListOf(kind_of(kind.value_type, fixed=fixed))
    if types.is_large_string(kind) or types.is_string_view(kind):
        kind = pa.string()
    return Leaf(kind, fixed)


def type_of(kind: Kind) -> pa.DataType:
    """The type of a column; null where it is not known. Fields that are not known are left out."""
    if isinstance(kind, Leaf):
        return kind.type
    if is_unknown(kind):
        return pa.null()
    if isinstance(kind, ListOf):
        return pa.list_(pa.field("element", type_of(kind.element)))
    assert isinstance(kind, Struct)
    return pa.struct(
        [pa.field(name, type_of(one)) for name, one in kind.fields.items() if not is_unknown(one)]
    )


def is_unknown(kind: Kind) -> bool:
    """Whether no value other than null and empty ones was seen."""
    if isinstance(kind, ListOf):
        return is_unknown(kind.element)
    if isinstance(kind, Struct):
        return all(is_unknown(one) for one in kind.fields.values())
    return kind is None


def renamed(kind: Kind, *, to_columns: bool) -> Kind:
    """With the names of columns for those of fields, or the other way round, inside of it."""
    if isinstance(kind, ListOf):
        return ListOf(renamed(kind.element, to_columns=to_columns))
    if isinstance(kind, Struct):
        struct = Struct()
        for name, one in kind.fields.items():
            struct.add(escaped(name) if to_columns else unescaped(name), renamed(one, to_columns=to_columns))
        return struct
    return kind


def leaves(kind: Kind) -> Iterator[pa.DataType]:
    """The types at the ends of it."""
    if isinstance(kind, Leaf):
        yield kind.type
    elif isinstance(kind, ListOf):
        yield from leaves(kind.element)
    elif isinstance(kind, Struct):
        for one in kind.fields.values():
            yield from leaves(one)


def _leaf(value: Any) -> Leaf:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT if MIN_BIGINT <= value <= MAX_BIGINT else DOUBLE
    return STRING if isinstance(value, str) else DOUBLE


def join(into: Struct, other: Struct) -> None:
    """Adds the fields of the other; where types contradict each other the first one stays."""
    for name, kind in other.fields.items():
        if name in into.fields:
            into.fields[name] = _joined(into.fields[name], kind)
        elif not into.has_alike(name):
            into.add(name, kind)


def _joined(kind: Kind, other: Kind) -> Kind:
    if kind is None or other is None:
        return other if kind is None else kind
    if isinstance(kind, Struct) and isinstance(other, Struct):
        join(kind, other)
    elif isinstance(kind, ListOf) and isinstance(other, ListOf):
        kind.element = _joined(kind.element, other.element)
    elif kind == BIGINT and other == DOUBLE:
        return DOUBLE
    return kind


def _holds(kind: pa.DataType, written: pa.DataType) -> bool:
    """Whether files of the one type can be read as the other: it has all the fields, of the same types."""
    types = pa.types
    if types.is_struct(kind) and types.is_struct(written):
        return all(
            kind.get_field_index(one.name) >= 0 and _holds(kind.field(one.name).type, one.type)
            for one in written.fields
        )
    if types.is_list(kind) and types.is_list(written):
        return _holds(kind.value_type, written.value_type)
    return bool(kind == written)


def _count(kind: Kind) -> int:
    if isinstance(kind, ListOf):
        return _count(kind.element)
    if isinstance(kind, Struct):
        return sum(1 + _count(one) for one in kind.fields.values())
    return 0
