"""What judges see of the nodes' machines: the files of logs on their disks, and their wall clocks."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.chaos.oracles.platter import durable_end
from kraft.chaos.oracles.retention import DataFile
from kraft.chaos.world.host import Host
from kraft.chaos.world.inodes import Folder, Inode
from partitions.log.cleaner.swap import CLEANED_SUFFIX, SWAP_SUFFIX
from partitions.log.segment import LOG_SUFFIX

_LOG_SUFFIXES = (".log", ".log.swap")
"""Data files of a log. A cleaned segment belongs to it from the moment that it has the name of a swap."""


class NodeDisks:
    """The machines of all nodes, by node id."""

    def __init__(self, hosts: Mapping[int, Host]) -> None:
        self._hosts = hosts

    def wall_clock_ms(self, node_id: int) -> int:
        return self._hosts[node_id].clock.now_ms()

    def data_files_in(self, node_id: int, directory: str) -> list[DataFile] | None:
        """The segments' data files of one log, in order; None while a cleaned one takes the place of others."""
        names = self._hosts[node_id].storage.folder(directory).names
        if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            return None
        return [
            DataFile(int(name.removesuffix(LOG_SUFFIX)), bytes(node.data))
            for name, node in sorted(names.items())
            if name.endswith(LOG_SUFFIX) and isinstance(node, Inode)
        ]

    def content_of(self, node_id: int, path: str) -> bytes:
        """The content of a file as readers see it; empty if there is no file."""
        node = self._hosts[node_id].storage.find(path)
        return bytes(node.data) if isinstance(node, Inode) else b""

    def durable_end(self, node_id: int, directory: str) -> int:
        """Up to where the log in this folder is on the platter; 0 without a folder."""
        folder = self._hosts[node_id].storage.find(directory)
        return durable_end(folder) if isinstance(folder, Folder) else 0

    def segments_in(self, node_id: int, directory: str) -> list[bytes]:
        """The data files of one log on the disk now, in order; none if the folder is gone."""
        folder = self._hosts[node_id].storage.find(directory)
        names = folder.names if isinstance(folder, Folder) else {}
        return [
            bytes(node.data)
            for name, node in sorted(names.items())
            if name.endswith(_LOG_SUFFIXES) and isinstance(node, Inode)
        ]
