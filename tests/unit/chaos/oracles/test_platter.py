"""How far a log is on its platter: contents and names, each by their fsync."""

from __future__ import annotations

from kraft.chaos.oracles.platter import durable_end
from kraft.chaos.world.inodes import Folder
from tests.support.broker_world import batch
from tests.support.logs import new_storage, simulated_disk

FIRST, SECOND = "/log/00000000000000000000.log", "/log/00000000000000000002.log"


def at(base: int, *values: bytes) -> bytes:
    data = bytearray(batch(*values))
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def test_what_is_durable_ends_where_file_and_name_were_fsynced() -> None:
    storage = new_storage()
    disk = simulated_disk(storage)
    disk.make_dirs("/log")

    def end() -> int:
        folder = storage.find("/log")
        assert isinstance(folder, Folder)
        return durable_end(folder)

    file = disk.open(FIRST, create=True)
    file.append([at(0, b"a", b"b")])
    assert end() == 0
    file.sync()
    assert end() == 0, "its name is not durable"
    disk.sync_dir("/log")
    assert end() == 2
    file.append([at(2, b"c")])
    assert end() == 2
    file.sync()
    assert end() == 3
    new = disk.open(SECOND, create=True)
    new.append([at(3, b"d")])
    new.sync()
    assert end() == 3
    disk.sync_dir("/log")
    assert end() == 4
