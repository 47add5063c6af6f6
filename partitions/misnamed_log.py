"""The log of a topic that has the name of the controller quorum's own log: it is never made, and never served.

Controllers refuse such a topic, but a cluster may have one from before they did. Its partition 0 has the folder
of a voter's journal. Guarantees: no journal is taken for that partition's log, nor made, renamed or removed as
one; the partition is offline, and nothing else is; a folder of records that a broker once made for it is found
at start, keeps no log from counting as closed, and goes when the topic is deleted. Used by the log manager.
"""

from __future__ import annotations

import structlog

from partitions.log.errors import LogStorageError
from partitions.log.opening import stored_topic_id
from partitions.log.parts import LogParts
from partitions.topic_partition import CLUSTER_METADATA

logger = structlog.get_logger(__name__)


def misnamed() -> LogStorageError:
    """Why a broker has no log of that partition."""
    return LogStorageError(
        f"{CLUSTER_METADATA} is the controller quorum's own log: a topic must not have its name; delete the topic"
    )


def set_apart_misnamed(parts: LogParts, vital_directory: str | None) -> None:
    """Adds a folder of that partition to the logs that failed. `vital_directory` is where this node's journal is, if
    it has one. Blocks; called once, after all logs were opened."""
    journal_home = None if vital_directory is None else vital_directory.rstrip("/")
    for directory in parts.directories.usable:
        folder = directory.folder(CLUSTER_METADATA)
        # A journal belongs to no topic, also one that is left from when the node was a voter.
        if directory.path == journal_home or stored_topic_id(directory.storage, folder) is None:
            continue
        parts.found.home[CLUSTER_METADATA] = directory
        parts.found.failed[CLUSTER_METADATA] = misnamed()
        logger.error("a log is not served", folder=folder, reason=str(misnamed()))
