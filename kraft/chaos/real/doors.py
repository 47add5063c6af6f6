"""The doors to the nodes of a run through which faults of their disks and clocks are imposed: a file a node, which the
node reads and counts in (`kraft.runtime.injected_faults`). It lies beside the node's data, so that a wiped disk keeps
it.

Several faults may hurt one node at once: each has an owner, the node gets all of them together, and one that ends
leaves the others.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final

from kraft.local_cluster.cluster import LocalCluster
from kraft.local_cluster.spec import node_config
from kraft.runtime.injected_faults import NONE, Counts, FaultFile, Faults

FILE: Final = "injected-faults"


def together(faults: Collection[Faults]) -> Faults:
    """What a node has that several faults hurt: what any of them breaks, the slowest fsyncs, all offsets."""
    return Faults(
        max((one.is_full for one in faults), default=0),
        max((one.is_failing for one in faults), default=0),
        max((one.sync_us for one in faults), default=0),
        sum(one.clock_offset_ms for one in faults),
    )


class Doors:
    """Of all nodes of a cluster. Threads may share it."""

    def __init__(self, files: Mapping[int, FaultFile]) -> None:
        self._files = dict(files)
        self._imposed: dict[int, dict[object, Faults]] = {node: {} for node in files}
        self._changing = threading.Lock()

    def close(self) -> None:
        """Nothing is imposed any more through this one."""
        while self._files:
            self._files.popitem()[1].close()

    def impose(self, node: int, faults: Faults, owner: object) -> None:
        """The owner's faults of a node are these from when this returns; `NONE` ends them."""
        with self._changing:
            imposed = self._imposed[node]
            imposed.pop(owner, None)
            if faults != NONE:
                imposed[owner] = faults
            self._files[node].impose(together(imposed.values()))

    def imposed(self, node: int) -> Faults:
        """What all owners impose on a node now."""
        with self._changing:
            return together(self._imposed[node].values())

    def found(self, node: int) -> Faults:
        """What the node finds in its file now."""
        return self._files[node].faults()

    def counts(self, node: int) -> Counts:
        """What its processes have counted."""
        return self._files[node].counts()


def open_doors(local: LocalCluster) -> Doors:
    """Makes the nodes' files, and has their configuration, which nobody has started yet, name them. Raises OSError."""
    files: dict[int, FaultFile] = {}
    for node in local.spec().nodes:
        path = local.node_dir(node.id) / FILE
        files[node.id] = FaultFile.make(str(path))
        with node_config(local.directory, node.id).open("a", encoding="utf-8") as config:
            config.write(f"chaos.enable=true\nchaos.faults.file={path}\n")
    return Doors(files)
