"""What the user of `kraft ingest` asks for, checked before anything is asked of a broker or written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from kraft.ingest.model import Format, TableProperties
from kraft.spark.errors import OptionError

DEFAULT_MAX_FILE_BYTES = 128 << 20
MIN_FILE_BYTES = 1 << 20
DEFAULT_TRIGGER_S = 2.0
MAX_TRIGGER_S = 86_400.0
_SIZES = MappingProxyType({"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30})
_SECONDS = MappingProxyType({"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0})
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_UNUSABLE_BY_DELTA = re.compile(r"%[0-9a-fA-F]{2}|[\x00-\x1f\x7f\\]")
"""In a path: `deltalake` decodes it as part of an address, or refuses it, when it opens the table again."""


@dataclass(frozen=True)
class IngestOptions:
    topics: tuple[str, ...]
    folder: Path
    """Absolute."""
    bootstrap: str
    """HOST:PORT[,…]"""
    properties: TableProperties
    schema_text: str | None = None
    """Of the file of --schema."""
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    continuous: bool = False
    trigger_s: float = DEFAULT_TRIGGER_S
    """Continuous: from the beginning of a cut to that of the next."""
    commit_group: str | None = None
    allow_holes: bool = False
    client_options: Mapping[str, str] = field(default_factory=dict)
    """`kafka.…` options of the connector: encryption and the like."""

    def reader_options(self) -> dict[str, str]:
        """Those of the connector, for the planner and for every worker."""
        return {
            "kafka.client.id": "kraft-ingest",
            **self.client_options,
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": ",".join(self.topics),
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }


def check_topics(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each once. Raises OptionError for no topic, and for what no topic can be called."""
    if not names:
        raise OptionError("Name the topics to ingest: kraft ingest TOPIC… --to DIR.")
    for name in names:
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            raise OptionError(
                f"{name!r} is no name of a topic: letters, digits, '.', '_' and '-', at most 249."
            )
    return tuple(dict.fromkeys(names))


def check_folder(folder: Path, table_format: Format) -> Path:
    """Before anything is written there. Raises OptionError for a path at which such a table cannot be opened."""
    found = _UNUSABLE_BY_DELTA.search(str(folder)) if table_format == "delta" else None
    if found is not None:
        raise OptionError(
            f"A Delta table cannot be in {str(folder)!r}, because of {found[0]!r} in the path: choose a folder without"
            " it, or --format parquet."
        )
    return folder


def check_client_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """Only what the client is told: what is read, the command decides. Raises OptionError."""
    for name in options:
        if not name.lower().startswith("kafka."):
            raise OptionError(
                f"--client-option takes kafka.… options, such as kafka.security.protocol=SSL, not {name}."
            )
    return options


def parse_size(text: str, option: str) -> int:
    """Bytes of `128MB`, `64 KB`, `1GB` or a plain number of bytes; units are powers of 1024. Raises OptionError."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([KMG]?B?)", text.strip().upper())
    if found is None or (found[2] not in _SIZES and f"{found[2]}B" not in _SIZES):
        raise OptionError(f"{option} is a size such as 128MB, 64KB or 1GB, not {text!r}.")
    size = int(found[1]) * _SIZES.get(found[2], _SIZES.get(f"{found[2]}B", 1))
    if size < MIN_FILE_BYTES:
        raise OptionError(f"{option} is at least 1MB, not {text!r}: smaller files make a table slow to read.")
    return size


def parse_trigger(text: str, option: str) -> float:
    """Seconds of `2s`, `500ms`, `1m` or a plain number of seconds. Raises OptionError."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise OptionError(f"{option} is a time such as 2s, 500ms or 1m, not {text!r}.")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if not seconds <= MAX_TRIGGER_S:
        raise OptionError(f"{option} is at most a day, not {text!r}.")
    return seconds
