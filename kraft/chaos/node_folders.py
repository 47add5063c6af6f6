"""Where a simulated node keeps its data, and how an operator formats a disk that is empty: a new or a wiped one."""

from __future__ import annotations

import base64
from random import Random

from partitions.disk import Disk
from partitions.log.node_logs.meta_properties import META_PROPERTIES, MetaProperties, write_meta_properties

DATA = "/var/lib/kraft"
"""The first data directory, with the quorum's files."""
JOURNAL = f"{DATA}/__cluster_metadata-0"
VOTER_FILES = (f"{DATA}/meta.properties", f"{DATA}/voted.marker")
"""The files that identify a voter, besides those in its journal's folder."""
CLUSTER_ID = "kraftChaosClusterIdAAA"
DIRECTORY_ID_BYTES = 16


def format_if_empty(disk: Disk, directory: str, node_id: int, rng: Random) -> None:
    """Gives an empty disk a new identity. Raises OSError."""
    left = set(disk.list_dir(directory)) if disk.exists(directory) else set()
    if left - {f"{META_PROPERTIES}.tmp"}:
        return
    disk.make_dirs(directory)
    for folder in ("/", "/var", "/var/lib"):
        disk.sync_dir(folder)
    format_folder(disk, directory, node_id, rng.randbytes(DIRECTORY_ID_BYTES))


def format_folder(
    disk: Disk, directory: str, node_id: int, directory_id: bytes, cluster_id: str = CLUSTER_ID
) -> None:
    """As `kraft storage format` does it. Raises OSError."""
    text = base64.urlsafe_b64encode(directory_id).rstrip(b"=").decode()
    write_meta_properties(disk, directory, MetaProperties(cluster_id, node_id, text))
