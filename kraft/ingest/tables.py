"""Opens the table in a folder, and says how rows are laid out in it. A folder that is something else is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kraft.ingest.delta import DeltaLakeTable
from kraft.ingest.folder import is_strange, read_properties
from kraft.ingest.model import Layout, Table, TableError, TableProperties
from kraft.ingest.options import IngestOptions
from kraft.ingest.table_columns import table_schema
from kraft.spark.errors import OptionError


def open_table(folder: Path, properties: TableProperties | None = None) -> Table:
    """The table that is there, or, with `properties`, one that its first commit makes. Raises TableError."""
    if is_strange(folder):
        raise TableError(
            f"{folder} is not empty and no table of kraft ingest: name another folder with --to."
        )
    found = read_properties(folder)
    if properties is None:
        if found is None:
            raise TableError(
                f"{folder} holds no table of kraft ingest: name the folder that was given to --to."
            )
        return _make(folder, found)
    table = _make(folder, found or properties)
    if found is not None and found != properties:
        if table.properties() is not None:
            raise TableError(
                f"{folder} is a table with {_options(found)}, and not with {_options(properties)}."
            )
        return _make(folder, properties)
    return table


def _make(folder: Path, properties: TableProperties) -> Table:
    if properties.format == "parquet":
        from kraft.ingest.parquet import ParquetTable

        return ParquetTable(folder, properties)
    return DeltaLakeTable(folder, properties)


def _options(properties: TableProperties) -> str:
    """As the command takes them."""
    partition_by = f" --partition-by {properties.partition_by}" if properties.partition_by else ""
    return f"--format {properties.format} --values {properties.values}{partition_by}"


def table_layout(options: IngestOptions, table: Table) -> Layout:
    """The table's columns, or those that it will begin with; fields of --schema that it lacks are added.

    Raises OptionError for a schema that contradicts the table.
    """
    values, partition_by = options.properties.values, options.properties.partition_by
    fields = None
    if options.schema_text is not None:
        from kraft.ingest.values.schema_files import parse_schema

        fields = parse_schema(options.schema_text)
    wanted = table_schema(values, partition_by, fields)
    present = table.schema()
    schema = wanted if present is None else _merged(present, wanted)
    infer = values == "json" and fields is None
    return Layout(values, partition_by, options.max_file_bytes, schema, infer)


def _merged(present: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    types = {field.name.lower(): field.type for field in present}
    for field in wanted:
        known = types.get(field.name.lower())
        if known is None:
            present = present.append(field)
        elif known != field.type:
            raise OptionError(
                f"--schema says {field.type} of {field.name}, but the table has {known}: a column keeps its type."
                " Name the field's type as it is, or ingest into a new folder."
            )
    return present
