"""Files in a table's folder that survive a loss of power, and what kind of table the folder is.

A file counts as written when its bytes and its name are on disk: both are fsynced before anything depends on it. A
failed fsync ends the run. `table.json` is written before a table's first commit, for both formats. The tables and the
claim call it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from kraft.ingest.model import CONTROL_FOLDER, Format, TableError, TableProperties, Values

_PROPERTIES = "table.json"


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's names, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """With those above it, and durable. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all, and durable; replaces a file of that name. Raises OSError."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def remove_file(path: Path) -> None:
    """Durably; one that is gone is no error. Raises OSError."""
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync(path.parent)


def control_folder(table: Path) -> Path:
    return table / CONTROL_FOLDER


def read_properties(table: Path) -> TableProperties | None:
    """What the folder was made for; None: no table of `kraft ingest`, or none yet. Raises TableError."""
    path = control_folder(table) / _PROPERTIES
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise TableError(f"{path} is damaged ({error}): restore it from a copy.") from error
    known = isinstance(found, dict) and found.get("format") in get_args(Format)
    if not known or found.get("values") not in get_args(Values):
        raise TableError(f"{path} describes no table that this version of kraft knows: {found!r}.")
    return TableProperties(found["format"], found["values"], found.get("partition_by"))


def write_properties(table: Path, properties: TableProperties) -> None:
    """Before the first commit. Raises OSError."""
    write_file(control_folder(table) / _PROPERTIES, json.dumps(properties._asdict()).encode())


def is_strange(table: Path) -> bool:
    """Whether the folder holds anything, but was not made by `kraft ingest`."""
    if not table.exists():
        return False
    return any(entry.name != CONTROL_FOLDER for entry in table.iterdir()) and read_properties(table) is None


def data_files(table: Path) -> Iterator[Path]:
    """All Parquet files below the folder that are no part of a log or of staging."""
    for root, folders, names in os.walk(table):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        yield from (Path(root, name) for name in sorted(names) if name.endswith(".parquet"))
