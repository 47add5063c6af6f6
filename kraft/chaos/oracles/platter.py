"""Up to where a log is on its platter: what the worst power loss leaves of it."""

from __future__ import annotations

from kraft.chaos.world.inodes import Folder, Inode
from partitions.log.segment import LOG_SUFFIX

_HEADER_BYTES = 61


def durable_end(folder: Folder) -> int:
    """The offset behind the last batch in the files of a log's folder whose names and contents were fsynced; of an
    empty log where its last segment begins."""
    names = [
        name for name, node in folder.durable.items() if name.endswith(LOG_SUFFIX) and isinstance(node, Inode)
    ]
    if not names:
        return 0
    name = max(names)
    node = folder.durable[name]
    assert isinstance(node, Inode)
    content = node.durable_content() if node.pending else node.data
    position, end = 0, int(name.removesuffix(LOG_SUFFIX))
    while position + _HEADER_BYTES <= len(content):
        size = 12 + int.from_bytes(content[position + 8 : position + 12], "big", signed=True)
        if size < _HEADER_BYTES or position + size > len(content):
            break
        base = int.from_bytes(content[position : position + 8], "big", signed=True)
        end = base + int.from_bytes(content[position + 23 : position + 27], "big", signed=True) + 1
        position += size
    return end
