"""`meta.properties`: which cluster and node a data directory belongs to, in Kafka's format.

Guarantees: a directory of another cluster or node, and one that was never formatted, is refused
with a sentence. `kraft storage format` writes the file; the log manager and the controller quorum
check it at every start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from partitions.disk import Disk, write_atomically
from partitions.log.errors import DataDirectoryError

META_PROPERTIES: Final = "meta.properties"
_VERSION: Final = "1"


class MetaProperties(NamedTuple):
    """Ids as they stand in the file: the directory's and the cluster's are 22 characters of base64."""

    cluster_id: str
    node_id: int
    directory_id: str


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = (
        f"version={_VERSION}",
        f"cluster.id={meta.cluster_id}",
        f"node.id={meta.node_id}",
        f"directory.id={meta.directory_id}",
        "",
    )
    return "\n".join(lines).encode("utf-8")


def decode_meta_properties(content: bytes, path: str) -> MetaProperties:
    """The file's values. Raises DataDirectoryError naming `path`."""
    values: dict[str, str] = {}
    for line in content.decode("utf-8", errors="replace").splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    if values.get("version") != _VERSION:
        raise DataDirectoryError(
            f"{path} has version {values.get('version')!r}, only {_VERSION} is supported; restore it if it is damaged"
        )
    missing = [key for key in ("cluster.id", "node.id", "directory.id") if not values.get(key)]
    if missing:
        raise DataDirectoryError(
            f"{path} lacks {', '.join(missing)}; restore it, or format the directory anew"
        )
    if not values["node.id"].isdecimal():
        raise DataDirectoryError(
            f"{path} has the node.id {values['node.id']!r}, which is not a number; restore it if it is damaged"
        )
    return MetaProperties(values["cluster.id"], int(values["node.id"]), values["directory.id"])


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """The directory's identity; None if it was never formatted. Raises DataDirectoryError, OSError."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        content = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode_meta_properties(content, path)


def write_meta_properties(disk: Disk, directory: str, meta: MetaProperties) -> None:
    """Formats the directory, durably. Raises OSError."""
    write_atomically(disk, f"{directory}/{META_PROPERTIES}", encode_meta_properties(meta))


def check_meta_properties(disk: Disk, directory: str, *, cluster_id: str, node_id: int) -> MetaProperties:
    """The directory's identity, if it is this node's. Raises DataDirectoryError, OSError."""
    meta = read_meta_properties(disk, directory)
    if meta is None:
        raise DataDirectoryError(
            f"the data directory {directory} is not formatted; run `kraft storage format --cluster-id"
            f" {cluster_id} --config FILE` for this node first"
        )
    if meta.cluster_id != cluster_id:
        raise DataDirectoryError(
            f"the data directory {directory} belongs to the cluster {meta.cluster_id} by its {META_PROPERTIES}, not"
            f" to {cluster_id};"
            " give this node another log.dirs, or the right cluster id"
        )
    if meta.node_id != node_id:
        raise DataDirectoryError(
            f"the data directory {directory} belongs to the node {meta.node_id} by its {META_PROPERTIES}, not to node"
            f" {node_id};"
            " check node.id and log.dirs"
        )
    return meta
