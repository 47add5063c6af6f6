"""What becomes of the fields that several slices found: one schema, whichever worker was faster."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest

from kraft.ingest.values.inference import MAX_FIELDS, Inference, Struct, merge_schemas, struct_of, type_of
from kraft.spark.slice_reader import PartitionSlice

TABLE = pa.schema([("offset", pa.int64()), ("id", pa.int64()), ("place", pa.struct([("lat", pa.float64())]))])


def slice_at(partition: int, start: int = 0) -> PartitionSlice:
    return PartitionSlice("t", b"", partition, start, start + 10, 0)


def with_field(name: str, kind: pa.DataType) -> pa.Schema:
    return TABLE.append(pa.field(name, kind))


def merged(*proposals: pa.Schema) -> tuple[pa.Schema, list[int]]:
    return merge_schemas(TABLE, [(slice_at(number), schema) for number, schema in enumerate(proposals)])


def test_nothing_new() -> None:
    assert merged(TABLE, TABLE) == (TABLE, [])


def test_fields_of_all_slices_are_added_at_the_end() -> None:
    schema, again = merged(with_field("a", pa.string()), with_field("b", pa.bool_()))
    assert schema.names == ["offset", "id", "place", "a", "b"]
    assert again == []


def test_the_lowest_slice_decides_on_a_type() -> None:
    schema, again = merged(with_field("a", pa.string()), with_field("a", pa.int64()))
    assert schema.field("a").type == pa.string()
    assert again == [1]


def test_the_order_of_answers_does_not_matter() -> None:
    proposals = [
        (slice_at(0), with_field("a", pa.string())),
        (slice_at(0, 10), with_field("b", pa.struct([("x", pa.int64())]))),
        (slice_at(1), pa.schema([*TABLE, ("a", pa.int64()), ("b", pa.struct([("y", pa.int64())]))])),
    ]
    outcomes = set()
    for order in permutations(proposals):
        schema, again = merge_schemas(TABLE, order)
        outcomes.add((str(schema), tuple(sorted(order[index][0] for index in again))))
    assert len(outcomes) == 1


def test_fractions_make_a_new_field_a_double_but_not_one_of_the_table() -> None:
    schema, again = merged(with_field("a", pa.int64()), with_field("a", pa.float64()))
    assert schema.field("a").type == pa.float64()
    assert again == [0]
    schema, again = merged(TABLE.set(1, pa.field("id", pa.float64())))
    assert (schema, again) == (TABLE, [0])


def test_fields_inside_of_others_are_added() -> None:
    wider = TABLE.set(2, pa.field("place", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])))
    assert merged(TABLE, wider) == (wider, [])


def test_names_that_differ_in_case_only_are_one_and_the_slice_is_written_again() -> None:
    schema, again = merged(with_field("a", pa.string()), with_field("A", pa.string()))
    assert schema.names[-1] == "a"
    assert again == [1]


@pytest.mark.parametrize(
    ("documents", "kind"),
    [
        ([{"a": None}, {}], "struct<>"),
        ([{"a": 1}, {"a": 2}], "struct<a: int64>"),
        ([{"a": 1}, {"a": 2.5}], "struct<a: double>"),
        ([{"a": 2.5}, {"a": 1}], "struct<a: double>"),
        ([{"a": 2**63}], "struct<a: double>"),
        ([{"a": "2026-01-01"}], "struct<a: string>"),
        ([{"a": True}, {"a": 1}], "struct<a: bool>"),
        (
            [{"a": []}, {"a": [None, {"b": 1}]}, {"a": [{"c": "x"}]}],
            "struct<a: list<element: struct<b: int64, c: string>>>",
        ),
        ([{"a": {"b": {}}}, {"a": {"c": 1}}], "struct<a: struct<c: int64>>"),
        ([{"a": 1}, {"A": "x"}], "struct<a: int64>"),
        ([{"": 1, "\ud800": 2, "n" * 300: 3, "b": 4}], "struct<b: int64>"),
    ],
)
def test_what_documents_have(documents: list[dict[str, object]], kind: str) -> None:
    inference = Inference(Struct())
    for document in documents:
        inference.show(document)
    found = type_of(inference.struct)
    assert str(pa.struct([]) if pa.types.is_null(found) else found) == kind


def test_a_table_has_room_for_so_many_fields() -> None:
    inference = Inference(struct_of(pa.schema([("a", pa.struct([("b", pa.int64())]))])))
    for number in range(2 * MAX_FIELDS):
        inference.show({f"f{number}": 1})
    assert len(inference.struct.fields) == MAX_FIELDS - 1
