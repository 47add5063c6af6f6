"""The durability rules of the simulated disk, one by one."""

from __future__ import annotations

import errno
import io
import random
from typing import Any

import pytest

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.disk_timing import DiskTiming
from kraft.chaos.world.host import Host
from kraft.chaos.world.incarnation import Incarnation, IncarnationGoneError
from kraft.chaos.world.operations import TornOperation
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.simulation import Simulation
from kraft.chaos.world.storage import Storage
from kraft.chaos.world.trace import Trace
from partitions.disk import write_atomically


class Machine:
    """A storage and its current process; `lose_power` kills the process and boots another."""

    def __init__(self, seed: int = 0) -> None:
        self.storage = Storage(random.Random(seed))
        self.scheduler = Scheduler(Trace())
        self.lives = 0
        self.boot()

    def boot(self) -> SimulatedDisk:
        self.lives += 1
        self.incarnation = Incarnation(self.scheduler, "10.0.0.1", self.lives)
        self.disk = SimulatedDisk(self.storage, self.incarnation, random.Random(0).uniform)
        return self.disk

    def kill(self) -> SimulatedDisk:
        self.incarnation.end()
        return self.boot()

    def lose_power(self) -> SimulatedDisk:
        self.incarnation.end()
        self.storage.lose_power()
        return self.boot()


def outcomes(scenario: Any, seeds: int = 300) -> list[Any]:
    """What `scenario(disk)` may leave: the files after a power loss, for many seeds."""
    results = []
    for seed in range(seeds):
        machine = Machine(seed)
        scenario(machine.disk)
        machine.lose_power()
        results.append(machine.storage.files())
    return results


def durable_file(disk: SimulatedDisk, path: str, data: bytes) -> Any:
    file = disk.open(path, create=True)
    file.append([data])
    file.sync()
    disk.sync_dir("/")
    return file


def _renamed(disk: SimulatedDisk) -> None:
    disk.open("/file", create=True).append([b"ab"])
    disk.rename("/file", "/other")


@pytest.mark.parametrize(
    "another",
    [
        lambda disk: disk.open("/file", create=True).append([b"ba"]),
        lambda disk: disk.open("/file", create=True).append([b"abc"]),
        lambda disk: disk.open("/fila", create=True).append([b"ab"]),
        lambda disk: disk.open("/file", create=True).write_at(1, b"ab"),
        lambda disk: [file := disk.open("/file", create=True), file.append([b"ab"]), file.truncate(1)],
        lambda disk: [disk.open("/file", create=True).append([b"ab"]), disk.remove("/file")],
        lambda disk: [disk.make_dirs("/folder"), disk.open("/file", create=True).append([b"ab"])],
        _renamed,
    ],
    ids=["bytes", "length", "name", "position", "cut", "removed", "folder", "renamed"],
)
def test_what_is_on_a_disk_is_in_the_digest_of_a_run(another):
    digests = []
    for write in (lambda disk: disk.open("/file", create=True).append([b"ab"]), another):
        for _ in range(2):
            machine = Machine()
            machine.storage.on_changed = machine.scheduler.trace.written
            write(machine.disk)
            digests.append(machine.scheduler.trace.digest())
    assert digests[0] == digests[1] != digests[2] == digests[3]


@pytest.mark.parametrize("damage", ["power loss", "wipe", "rot", "repair"])
def test_what_damage_leaves_is_in_the_digest_of_a_run(damage):
    digests: dict[str, set[str]] = {}
    for seed in range(24):
        machine = Machine(seed)
        durable_file(machine.disk, "/file", b"x" * 40)
        machine.disk.open("/file").append([b"y" * 2_000])
        machine.disk.make_dirs("/folder")
        storage, trace = machine.storage, machine.scheduler.trace
        if damage == "repair":
            storage.lose_power()
            storage.rot(random.Random(seed % 3), lambda path: True)
        storage.on_changed = trace.written
        if damage == "power loss":
            storage.lose_power()
        elif damage == "wipe":
            storage.wipe(lambda path, spares=seed % 2: bool(spares))
        elif damage == "rot":
            storage.rot(random.Random(seed % 4), lambda path: True)
        else:
            storage.repair()
        left = repr((sorted(storage.files().items()), storage.find("/folder") is not None))
        digests.setdefault(left, set()).add(trace.digest())
    assert len(digests) > 1
    assert all(len(of_one) == 1 for of_one in digests.values())
    assert len(set.union(*digests.values())) == len(digests)


def test_the_timeline_tells_what_happened_to_a_disk():
    timeline = io.StringIO()
    trace = Trace(timeline=timeline)
    machine = Machine()
    machine.storage.on_changed = trace.written
    machine.disk.open("/file", create=True).append([b"ab"])
    assert [line.split()[:1] for line in timeline.getvalue().splitlines()] == [["disk"], ["disk"]]
    assert "2 B b'ab'" in timeline.getvalue()


def test_the_disks_of_a_simulated_host_are_in_the_digest():
    def digest(data: bytes) -> str:
        simulation = Simulation(1)
        host = Host(simulation, "10.0.0.1", "node")
        host.storage.create_file("/file")
        disk = SimulatedDisk(
            host.storage, Incarnation(simulation.scheduler, "10.0.0.1", 1), lambda low, high: low
        )
        disk.open("/file").append([data])
        return simulation.digest()

    assert digest(b"ab") == digest(b"ab") != digest(b"ba")


def test_kill_keeps_everything():
    machine = Machine()
    machine.disk.open("/file", create=True).append([b"un", b"synced"])
    disk = machine.kill()
    assert disk.read_bytes("/file") == b"unsynced"


def test_synced_data_under_a_synced_name_survives():
    for files in outcomes(lambda disk: durable_file(disk, "/file", b"x" * 5_000)):
        assert files == {"/file": b"x" * 5_000}


def test_a_synced_file_whose_name_was_not_synced_may_be_gone_but_is_whole_if_there():
    def scenario(disk):
        file = disk.open("/file", create=True)
        file.append([b"data"])
        file.sync()

    assert {tuple(files.items()) for files in outcomes(scenario)} == {(), (("/file", b"data"),)}


def test_a_synced_name_without_synced_data_may_be_empty():
    def scenario(disk):
        disk.open("/file", create=True).append([b"data"])
        disk.sync_dir("/")

    assert {files["/file"] for files in outcomes(scenario)} == {b"", b"data"}


def test_unsynced_appends_are_lost_kept_torn_or_holed():
    old, chunks = b"o" * 700, [b"a" * 700, b"b" * 700, b"c" * 700]
    full = old + b"".join(chunks)

    def scenario(disk):
        file = durable_file(disk, "/file", old)
        for chunk in chunks:
            file.append([chunk])

    contents = [files["/file"] for files in outcomes(scenario)]
    assert all(content.startswith(old) for content in contents)
    assert {old, old + chunks[0], full} <= set(contents)
    torn = [c for c in contents if full.startswith(c) and len(c) not in (700, 1400, 2100, 2800)]
    assert torn
    assert all(len(content) % 512 == 0 for content in torn)
    holed = [content for content in contents if not full.startswith(content)]
    assert holed
    for content in holed:
        for start in range(0, len(content), 512):
            pieces = {full[i] == content[i] for i in range(max(start, 700), min(start + 512, len(content)))}
            assert all(content[i] in (full[i], 0) for i in range(start, min(start + 512, len(content))))
            assert pieces <= {True, False}


def test_overwrites_within_a_file_are_old_or_new_by_sector():
    def scenario(disk):
        durable_file(disk, "/index", b"o" * 2048).write_at(100, b"n" * 1_000)

    expected = {b"o" * 100 + b"n" * 1_000 + b"o" * 948, b"o" * 2048}
    contents = {files["/index"] for files in outcomes(scenario)}
    assert expected < contents
    for content in contents:
        for start in range(0, 2048, 512):
            sectors = {whole[start : start + 512] for whole in expected}
            assert content[start : start + 512] in sectors


def test_a_lost_truncation_takes_what_came_after_with_it():
    def scenario(disk):
        file = durable_file(disk, "/log", b"abcdef")
        file.truncate(3)
        file.append([b"XYZ"])

    assert {files["/log"] for files in outcomes(scenario)} == {b"abcdef", b"abc", b"abcXYZ"}


def test_fsync_covers_only_what_came_before():
    def scenario(disk):
        file = durable_file(disk, "/log", b"before ")
        file.append([b"after"])

    assert {files["/log"] for files in outcomes(scenario)} == {b"before ", b"before after"}


def test_a_horizon_keeps_later_writes_out_of_an_fsync():
    def scenario(disk):
        file = durable_file(disk, "/log", b"1")
        file.append([b"2"])
        horizon = disk.write_sequence
        file.append([b"3"])
        disk.open("/new", create=True)
        with disk.accounting(horizon) as account:
            file.sync()
            disk.sync_dir("/")
        assert account.seconds > 0

    results = outcomes(scenario)
    assert {files["/log"] for files in results} == {b"12", b"123"}
    assert {"/new" in files for files in results} == {True, False}


def test_a_job_covers_what_it_wrote_itself():
    def scenario(disk):
        disk.make_dirs("/data")
        disk.sync_dir("/")
        durable_file(disk, "/data/state", b"old")
        horizon = disk.write_sequence
        disk.open("/data/before", create=True)
        with disk.accounting(horizon):
            write_atomically(disk, "/data/state", b"new")
            disk.open("/data/after", create=True)

    results = outcomes(scenario)
    assert {files["/data/state"] for files in results} == {b"new"}
    for name in ("/data/before", "/data/after"):
        assert {name in files for files in results} == {True, False}


def test_renames_are_atomic_and_not_durable_before_the_folders_fsync():
    def scenario(disk):
        durable_file(disk, "/state", b"old")
        file = disk.open("/state.tmp", create=True)
        file.append([b"new"])
        file.sync()
        disk.rename("/state.tmp", "/state")

    assert {tuple(files.items()) for files in outcomes(scenario)} == {
        (("/state", b"old"),),
        (("/state", b"old"), ("/state.tmp", b"new")),
        (("/state", b"new"),),
    }


def test_write_atomically_is_atomic_and_durable():
    def scenario(disk):
        disk.make_dirs("/data")
        disk.sync_dir("/")
        write_atomically(disk, "/data/state", b"1")
        write_atomically(disk, "/data/state", b"2")

    assert all(files == {"/data/state": b"2"} for files in outcomes(scenario))


def test_a_rename_of_unsynced_data_may_leave_an_empty_file():
    def scenario(disk):
        disk.open("/state.tmp", create=True).append([b"new"])
        disk.rename("/state.tmp", "/state")
        disk.sync_dir("/")

    assert {files["/state"] for files in outcomes(scenario)} == {b"", b"new"}


def test_a_removed_file_may_come_back_until_the_folder_is_synced():
    def remove(disk):
        durable_file(disk, "/file", b"data")
        disk.remove("/file")

    def remove_durably(disk):
        remove(disk)
        disk.sync_dir("/")

    assert {tuple(files) for files in outcomes(remove)} == {(), ("/file",)}
    assert {tuple(files) for files in outcomes(remove_durably)} == {()}


def test_what_happened_in_a_folder_that_is_gone_for_good_is_forgotten():
    machine = Machine()
    disk = machine.disk
    disk.make_dirs("/t-0/inner")
    for path in ("/t-0/log", "/t-0/inner/log"):
        disk.open(path, create=True)
    disk.sync_dir("/")
    disk.sync_dir("/t-0")
    disk.remove_tree("/t-0")
    assert machine.storage.unsynced_names() > 1
    disk.sync_dir("/")
    assert machine.storage.unsynced_names() == 0
    disk.make_dirs("/t-0")  # another folder of that name
    assert machine.storage.unsynced_names() == 1
    disk.sync_dir("/")
    machine.storage.lose_power()
    assert machine.storage.files() == {}
    assert machine.storage.find("/t-0") is not None


def test_unsynced_names_are_independent_of_each_other():
    def scenario(disk):
        for name in "abc":
            disk.open(f"/{name}", create=True)

    assert len({tuple(files) for files in outcomes(scenario)}) == 8


def test_folders_need_their_own_fsync():
    def scenario(disk):
        disk.make_dirs("/a/b")
        disk.open("/a/b/file", create=True)
        disk.sync_dir("/a/b")
        disk.sync_dir("/a")

    assert {tuple(files) for files in outcomes(scenario)} == {(), ("/a/b/file",)}


def test_renaming_a_folder_moves_what_is_below_it():
    machine = Machine()
    disk = machine.disk
    disk.make_dirs("/t-0")
    disk.open("/t-0/log", create=True).append([b"x"])
    machine.storage.sync_everything()
    disk.rename("/t-0", "/t-0.delete")
    assert machine.storage.files() == {"/t-0.delete/log": b"x"}
    disk.remove_tree("/t-0.delete")
    assert disk.list_dir("/") == []
    assert machine.storage.unsynced_names() == 3


def test_after_a_power_loss_everything_that_is_left_is_durable():
    for seed in range(50):
        machine = Machine(seed)
        for name in "abc":
            machine.disk.open(f"/{name}", create=True).append([bytes([65]) * 3_000])
        machine.lose_power()
        left = machine.storage.files()
        machine.lose_power()
        assert machine.storage.files() == left


def test_slices_outlive_names_and_notice_truncation():
    disk = Machine().disk
    file = disk.open("/segment", create=True)
    file.append([b"0123456789"])
    piece = file.slice(2, 4)
    disk.remove("/segment")
    file.close()
    assert (piece.fileno(), piece.position, piece.length, piece.read()) == (-1, 2, 4, b"2345")
    other = disk.open("/segment", create=True)
    assert other.size() == 0
    other.append([b"abc"])
    short = other.slice(0, 3)
    other.truncate(2)
    with pytest.raises(EOFError):
        short.read()


def test_locks_belong_to_a_life():
    machine = Machine()
    lock = machine.disk.lock("/.lock")
    with pytest.raises(BlockingIOError):
        machine.disk.lock("/.lock")
    lock.release()
    machine.disk.lock("/.lock")
    disk = machine.kill()
    disk.lock("/.lock")


def test_a_dead_process_can_do_nothing():
    machine = Machine()
    disk, file = machine.disk, machine.disk.open("/file", create=True)
    machine.kill()
    for operation in (lambda: file.append([b"x"]), file.sync, lambda: disk.remove("/file")):
        with pytest.raises(IncarnationGoneError):
            operation()
    assert machine.storage.files() == {"/file": b""}


def test_a_hook_sees_each_operation_first_and_may_fail_it_or_kill_the_process():
    machine = Machine()
    file = machine.disk.open("/file", create=True)
    seen = []

    def hook(operation: str, path: str) -> None:
        seen.append((operation, path))
        if operation == "sync":
            raise OSError(errno.EIO, "the disk is broken", path)
        if operation == "truncate":
            machine.incarnation.end()

    machine.storage.before_operation = hook
    file.append([b"x"])
    with pytest.raises(OSError, match="broken"):
        file.sync()
    with pytest.raises(IncarnationGoneError):
        file.truncate(0)
    assert seen == [("append", "/file"), ("sync", "/file"), ("truncate", "/file")]
    assert machine.storage.files() == {"/file": b"x"}


def test_a_sync_outside_of_a_job_blocks_the_loop():
    machine = Machine()
    blocked: list[float] = []
    machine.disk.on_blocked = blocked.append
    machine.storage.timing.sync_s = (0.5, 0.6)
    machine.disk.open("/file", create=True).sync()
    with machine.disk.accounting() as account:
        machine.disk.sync_dir("/")
    assert len(blocked) == 1
    assert 0.5 <= blocked[0] <= 0.6
    assert 0.5 <= account.seconds <= 0.6


def test_errors_of_a_real_file_system():
    disk = Machine().disk
    disk.make_dirs("/folder")
    file = disk.open("/file", create=True)
    with pytest.raises(FileNotFoundError):
        disk.open("/missing")
    with pytest.raises(FileNotFoundError):
        disk.open("/missing/file", create=True)
    with pytest.raises(IsADirectoryError):
        disk.open("/folder")
    with pytest.raises(NotADirectoryError):
        disk.list_dir("/file")
    with pytest.raises(NotADirectoryError):
        disk.open("/file/below", create=True)
    with pytest.raises(FileNotFoundError):
        disk.rename("/missing", "/file")
    with pytest.raises(ValueError, match="absolute"):
        disk.exists("relative")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append([b"x"])


def tear(machine: Machine, operation: str, fraction: float) -> None:
    """The next such operation ends the process when so much of it is done."""

    def hook(name: str, path: str) -> None:
        if name == operation:
            machine.storage.remove_hook(hook)
            raise TornOperation(fraction, machine.incarnation.end)

    machine.storage.add_hook(hook)


def test_a_torn_write_leaves_a_prefix_and_ends_the_process():
    machine = Machine()
    file = machine.disk.open("/file", create=True)
    tear(machine, "append", 0.25)
    with pytest.raises(IncarnationGoneError):
        file.append([b"ab", b"cdefgh"])
    assert machine.storage.files() == {"/file": b"ab"}
    file = machine.boot().open("/file")
    tear(machine, "write", 0.5)
    with pytest.raises(IncarnationGoneError):
        file.write_at(1, b"XYZ_")
    assert machine.storage.files() == {"/file": b"aXY"}


def test_a_torn_removal_leaves_a_part_of_the_tree_and_anything_else_does_not_happen():
    machine = Machine()
    machine.disk.make_dirs("/t-0")
    for name in "abc":
        machine.disk.open(f"/t-0/{name}", create=True)
    tear(machine, "remove_tree", 0.5)
    with pytest.raises(IncarnationGoneError):
        machine.disk.remove_tree("/t-0")
    assert list(machine.storage.files()) == ["/t-0/c"]
    for operation, *paths in (("rename", "/t-0/c", "/t-0/d"), ("remove", "/t-0/c"), ("sync_dir", "/")):
        disk = machine.boot()
        tear(machine, operation, 1.0)
        with pytest.raises(IncarnationGoneError):
            getattr(disk, operation)(*paths)
    assert list(machine.storage.files()) == ["/t-0/c"]
    assert machine.storage.unsynced_names() == 6


def test_hooks_stand_side_by_side():
    machine = Machine()
    seen: list[str] = []
    first, second = (lambda *_: seen.append("first")), (lambda *_: seen.append("second"))
    machine.storage.add_hook(first)
    machine.storage.add_hook(second)
    machine.disk.exists("/")
    machine.storage.remove_hook(first)
    machine.disk.exists("/")
    machine.storage.remove_hook(second)
    machine.storage.remove_hook(second)
    assert machine.storage.before_operation is None
    assert seen == ["first", "second", "second"]


def test_after_a_failed_fsync_no_other_makes_anything_durable():
    def scenario(disk):
        file = durable_file(disk, "/log", b"before ")
        disk._storage.sync_failure = lambda path: errno.EIO
        file.append([b"after"])
        disk.open("/new", create=True)
        for sync in (file.sync, lambda: disk.sync_dir("/")):
            with pytest.raises(OSError, match="Input/output error"):
                sync()
        disk._storage.sync_failure = None
        file.sync()
        disk.sync_dir("/")
        assert disk.read_bytes("/log") == b"before after"

    results = outcomes(scenario)
    assert {files["/log"] for files in results} == {b"before ", b"before after"}
    assert {"/new" in files for files in results} == {True, False}


def test_after_a_power_loss_fsync_works_again():
    machine = Machine()
    file = durable_file(machine.disk, "/log", b"1")
    machine.storage.sync_failure = lambda path: errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    machine.storage.sync_failure = None
    disk = machine.lose_power()
    for _ in range(20):
        file = disk.open("/log")
        file.append([b"2"])
        file.sync()
        disk = machine.lose_power()
    assert disk.read_bytes("/log") == b"1" + b"2" * 20


def test_a_full_disk_takes_what_fits():
    machine = Machine()
    disk = machine.disk
    file = durable_file(disk, "/log", b"12345")
    other = disk.open("/other", create=True)
    refused: list[str] = []
    machine.storage.free_bytes, machine.storage.on_refused = 3, refused.append
    with pytest.raises(OSError, match="No space left") as raised:
        file.append([b"abcdef"])
    assert raised.value.errno == errno.ENOSPC
    assert disk.read_bytes("/log") == b"12345abc"
    file.write_at(0, b"ABCDEFGH")
    with pytest.raises(OSError, match="No space left"):
        file.write_at(6, b"xyz")
    for create in (lambda: disk.open("/new", create=True), lambda: disk.make_dirs("/folder")):
        with pytest.raises(OSError, match="No space left"):
            create()
    assert disk.read_bytes("/log") == b"ABCDEFxy"
    file.truncate(4)
    other.append([b"1234"])
    with pytest.raises(OSError, match="No space left"):
        other.append([b"5"])
    disk.rename("/other", "/log")
    disk.sync_dir("/")
    disk.open("/log").append([b"5678"])
    disk.remove("/log")
    assert machine.storage.free_bytes == 8
    assert refused == ["/log", "/log", "/new", "/folder", "/other"]


def test_a_full_disk_writes_over_a_hole_only_with_room_for_it():
    machine = Machine()
    file = machine.disk.open("/index", create=True)
    machine.storage.free_bytes = 5
    with pytest.raises(OSError, match="No space left"):
        file.write_at(4, b"abc")
    assert machine.disk.read_bytes("/index") == bytes(4) + b"a"


def test_only_what_is_durable_rots_and_it_can_be_repaired():
    positions = set()
    for seed in range(200):
        machine = Machine()
        file = durable_file(machine.disk, "/data.log", b"durable")
        file.append([b"unsynced"])
        file.write_at(5, b"XX")
        durable_file(machine.disk, "/other", b"x")
        machine.disk.open("/empty.log", create=True)
        where = machine.storage.rot(random.Random(seed), lambda path: path.endswith(".log"))
        assert where is not None
        content = machine.disk.read_bytes("/data.log")
        [position] = [i for i, byte in enumerate(b"durabXXunsynced") if content[i] != byte]
        assert where == ("/data.log", position)
        assert (content[position] ^ b"durable"[position]).bit_count() == 1
        positions.add(position)
        machine.lose_power()
        assert machine.storage.files()["/data.log"][position] == content[position]
        assert machine.storage.repair()
        assert not machine.storage.repair()
        assert machine.storage.files()["/data.log"].startswith(b"durab")
    assert positions == set(range(5))


def test_what_was_overwritten_has_healed():
    for seed in range(100):
        machine = Machine(seed)
        file = durable_file(machine.disk, "/log", b"0123456789")
        machine.storage.rot(random.Random(seed), lambda path: True)
        file.truncate(0)
        file.append([b"abcdefghij"])
        assert not machine.storage.repair()
        machine.lose_power()
        assert machine.storage.files()["/log"] in (b"0123456789", b"", b"abcdefghij")


def test_rot_that_a_page_cache_hides_can_be_left_out():
    machine = Machine()
    durable_file(machine.disk, "/log", b"x" * 100)
    rot = machine.storage.rot
    assert rot(random.Random(0), lambda path: True, uncached=True) is None, "this process wrote it all"
    machine.incarnation.end()
    disk = machine.boot()
    file = disk.open("/log")
    file.read(20, 10)
    file.slice(40, 5).read()
    positions = set()
    for seed in range(400):
        where = rot(random.Random(seed), lambda path: True, uncached=True)
        assert where is not None
        positions.add(where[1])
        assert machine.storage.is_rotten("/")
        machine.storage.repair()
    assert positions == {*range(20), *range(45, 100)}, "what lies between two reads counts as read"
    disk.read_bytes("/log")
    assert rot(random.Random(0), lambda path: True, uncached=True) is None
    assert rot(random.Random(0), lambda path: True) is not None


def test_what_is_rotten_is_known_by_folder_until_it_is_repaired():
    machine = Machine()
    for folder in ("/a", "/ab"):
        machine.disk.make_dirs(folder)
        durable_file(machine.disk, f"{folder}/log", b"x")
    assert machine.storage.rot(random.Random(0), lambda path: path.startswith("/ab/")) == ("/ab/log", 0)
    rotten = [path for path in ("/", "/a", "/ab", "/ab/log", "/gone") if machine.storage.is_rotten(path)]
    assert rotten == ["/", "/ab", "/ab/log"]
    assert not machine.storage.repair(lambda path: path.startswith("/a/"))
    assert machine.storage.repair(lambda path: path.startswith("/ab/"))
    assert not machine.storage.is_rotten("/")


def test_only_the_full_file_system_refuses():
    machine = Machine()
    for folder in ("/data", "/data-2"):
        machine.disk.make_dirs(folder)
    first = machine.disk.open("/data/log", create=True)
    second = machine.disk.open("/data-2/log", create=True)
    machine.storage.free_bytes, machine.storage.full_below = 3, "/data-2"
    first.append([b"x" * 100])
    with pytest.raises(OSError, match="No space"):
        second.append([b"y" * 5])
    assert second.read(0, 10) == b"yyy", "what fits is written"
    machine.disk.open("/data/other", create=True)
    with pytest.raises(OSError, match="No space"):
        machine.disk.open("/data-2/other", create=True)
    second.truncate(1)
    second.append([b"yy"])
    machine.storage.free_bytes = None
    second.append([b"y" * 100])


def test_a_disk_tells_its_room():
    machine = Machine()
    for folder in ("/data", "/data-2"):
        machine.disk.make_dirs(folder)
    total_bytes, usable_bytes = machine.disk.space("/data")
    assert usable_bytes == total_bytes > 0
    machine.storage.free_bytes, machine.storage.full_below = 1000, "/data-2"
    machine.disk.open("/data-2/log", create=True).append([b"x" * 300])
    assert machine.disk.space("/data-2") == (total_bytes, 700)
    assert machine.disk.space("/data") == (total_bytes, total_bytes)
    with pytest.raises(FileNotFoundError):
        machine.disk.space("/missing")
    with pytest.raises(NotADirectoryError):
        machine.disk.space("/data-2/log")


def test_nothing_rots_where_nothing_is_durable():
    machine = Machine()
    machine.disk.open("/log", create=True).append([b"x"])
    assert machine.storage.rot(random.Random(0), lambda path: True) is None


def test_a_wiped_disk_is_empty_and_works():
    machine = Machine()
    durable_file(machine.disk, "/log", b"x")
    machine.disk.lock("/.lock")
    machine.incarnation.end()
    machine.storage.wipe()
    disk = machine.boot()
    assert machine.storage.files() == {}
    disk.lock("/.lock")
    durable_file(disk, "/log", b"y")
    assert machine.lose_power().read_bytes("/log") == b"y"


def test_a_disk_that_hangs_now_and_then():
    machine = Machine()
    machine.storage.slow_down(DiskTiming(sync_s=(0.001, 0.002), hiccup_odds=0.3, hiccup_s=(1.0, 2.0)))
    costs = []
    for _ in range(100):
        with machine.disk.accounting() as account:
            machine.disk.sync_dir("/")
        costs.append(account.seconds)
    slow = [cost_s for cost_s in costs if cost_s > 0.01]
    assert 10 < len(slow) < 60
    assert all(1.0 < cost_s < 2.01 for cost_s in slow)
