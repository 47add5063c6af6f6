"""The simulated disk against two models: the real file system, and what may be left by a power loss."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.storage import Storage
from kraft.chaos.world.trace import Trace
from kraft.runtime.disk import RealDisk
from partitions.disk import Disk
from tests.support.examples import examples

names = st.sampled_from(["/a", "/b", "/d", "/d/x", "/d/y", "/d/e", "/d/e/z", "/a/below"])
sizes = st.integers(0, 2_000)
operations = st.one_of(
    st.tuples(st.just("append"), names, sizes),
    st.tuples(st.just("write_at"), names, sizes, sizes),
    st.tuples(st.just("truncate"), names, sizes),
    st.tuples(st.just("read"), names, sizes, sizes),
    st.tuples(st.just("make_dirs"), names),
    st.tuples(st.just("list_dir"), names),
    st.tuples(st.just("exists"), names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("remove_tree"), names),
)


def new_disk(seed: int = 0) -> tuple[Storage, SimulatedDisk]:
    storage = Storage(random.Random(seed))
    incarnation = Incarnation(Scheduler(Trace()), "10.0.0.1", 1)
    return storage, SimulatedDisk(storage, incarnation, random.Random(0).uniform)


def perform(disk: Disk, root: str, number: int, operation: tuple[Any, ...]) -> Any:
    """The result of one operation, or the errno that it failed with."""
    kind, path, *rest = operation
    path = root + path
    fill = bytes([number % 255 + 1])
    try:
        if kind in ("append", "write_at", "truncate", "read"):
            file = disk.open(path, create=kind != "read")
            try:
                if kind == "append":
                    file.append([fill * rest[0], b"", fill])
                elif kind == "write_at":
                    file.write_at(rest[0], fill * rest[1])
                elif kind == "truncate":
                    file.truncate(rest[0])
                return file.size(), file.read(*(rest if kind == "read" else (0, 10_000)))
            finally:
                file.close()
        if kind == "rename":
            return disk.rename(path, root + rest[0])
        return getattr(disk, kind)(path)
    except OSError as error:
        return error.errno


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(operations, max_size=25))
@example([("make_dirs", "/d"), ("append", "/d/x", 0), ("rename", "/d/x", "/d")])
def test_it_works_as_the_real_file_system_does(story):
    root = tempfile.mkdtemp(prefix="kraft-disk-")
    try:
        _, simulated = new_disk()
        real = RealDisk()
        for number, operation in enumerate(story):
            assert perform(simulated, "", number, operation) == perform(real, root, number, operation)
    finally:
        shutil.rmtree(root)


class History:
    """Per file: the contents it had since its last fsync, oldest first; judges what is left of it."""

    def __init__(self) -> None:
        self.contents: list[bytes] = [b""]

    def changed(self, content: bytes) -> None:
        self.contents.append(content)

    def synced(self) -> None:
        del self.contents[:-1]

    def allows(self, left: bytes) -> bool:
        if len(self.contents) == 1:
            return left == self.contents[0]
        if len(left) > max(map(len, self.contents)):
            return False
        return all(
            byte == 0 or any(len(content) > i and content[i] == byte for content in self.contents)
            for i, byte in enumerate(left)
        )


changes = st.lists(
    st.one_of(
        st.tuples(st.just("append"), sizes),
        st.tuples(st.just("write_at"), sizes, sizes),
        st.tuples(st.just("truncate"), sizes),
        st.tuples(st.just("sync")),
    ),
    max_size=12,
)


@settings(max_examples=examples(100), deadline=None)
@given(changes, st.integers(0, 2**32))
def test_a_power_loss_leaves_only_bytes_that_were_written(story, seed):
    storage, disk = new_disk(seed)
    file, history = disk.open("/file", create=True), History()
    disk.sync_dir("/")
    for number, (kind, *rest) in enumerate(story):
        fill = bytes([number + 1])
        actions: dict[str, Callable[..., None]] = {
            "append": lambda n, fill=fill: file.append([fill * n]),
            "write_at": lambda at, n, fill=fill: file.write_at(at, fill * n),
            "truncate": file.truncate,
            "sync": file.sync,
        }
        actions[kind](*rest)
        if kind == "sync":
            history.synced()
        else:
            history.changed(disk.read_bytes("/file"))
    storage.lose_power()
    assert history.allows(storage.files()["/file"])


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(sizes, st.none()), max_size=12), st.integers(0, 2**32))
def test_an_append_only_file_keeps_what_was_synced_and_a_possible_tail(story, seed):
    storage, disk = new_disk(seed)
    file = disk.open("/log", create=True)
    disk.sync_dir("/")
    durable = 0
    for number, size in enumerate(story):
        if size is None:
            file.sync()
            durable = file.size()
        else:
            file.append([bytes([number + 1]) * size])
    written = disk.read_bytes("/log")
    storage.lose_power()
    left = storage.files()["/log"]
    assert left[:durable] == written[:durable]
    assert len(left) <= len(written)
    for start in range(durable, len(left)):
        assert left[start] in (0, written[start])


name_changes = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from("abc")),
        st.tuples(st.just("remove"), st.sampled_from("abc")),
        st.tuples(st.just("rename"), st.sampled_from("abc"), st.sampled_from("abc")),
        st.tuples(st.just("sync")),
    ),
    max_size=20,
)


@settings(max_examples=examples(100), deadline=None)
@given(name_changes, st.integers(0, 2**32))
def test_a_power_loss_leaves_only_names_that_were_there_since_the_folders_fsync(story, seed):
    storage, disk = new_disk(seed)
    names: dict[str, bytes | None] = dict.fromkeys("abc")
    possible: dict[str, set[bytes | None]] = {name: {None} for name in names}
    for number, (kind, *rest) in enumerate(story):
        if kind == "sync":
            disk.sync_dir("/")
            possible = {name: {identity} for name, identity in names.items()}
        elif kind == "create" and names[rest[0]] is None:
            identity = bytes([number])
            file = disk.open(f"/{rest[0]}", create=True)
            file.append([identity])
            file.sync()
            names[rest[0]] = identity
        elif kind == "remove" and names[rest[0]] is not None:
            disk.remove(f"/{rest[0]}")
            names[rest[0]] = None
        elif kind == "rename" and names[rest[0]] is not None and rest[0] != rest[1]:
            disk.rename(f"/{rest[0]}", f"/{rest[1]}")
            names[rest[1]], names[rest[0]] = names[rest[0]], None
        for name, identity in names.items():
            possible[name].add(identity)
    storage.lose_power()
    left = storage.files()
    assert len(set(left.values())) == len(left), "one file has two names"
    for name in names:
        assert left.get(f"/{name}") in possible[name]
    if all(len(identities) == 1 for identities in possible.values()):
        assert {f"/{n}": i for n, i in names.items() if i is not None} == left
