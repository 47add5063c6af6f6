"""The library is the one whose source was read, and sees only what it is given."""

import ast
import random
import time

import pytest
from pysyncobj import syncobj

from quorum.raft import compat
from quorum.raft.compat import IncompatibleLibraryError, World, check_library, missing_names, running
from tests.support.source_tree import product_modules, syntax_of

KEEPERS = {"quorum.raft.compat", "quorum.raft.node"}


def test_the_installed_library_is_the_pinned_one():
    check_library()


def test_another_version_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(compat, "VERSION", "0.3.18")
    with pytest.raises(IncompatibleLibraryError, match=r"pip install pysyncobj==0\.3\.17"):
        check_library()


@pytest.mark.parametrize("name", ["_SyncObj__sendAppendEntries", "_onTick"])
def test_every_missing_name_is_told(monkeypatch, name):
    monkeypatch.delattr(syncobj.SyncObj, name)
    assert missing_names() == [name]
    with pytest.raises(IncompatibleLibraryError, match=name):
        check_library()


def test_a_missing_function_of_the_module_is_told(monkeypatch):
    monkeypatch.delattr(syncobj, "createPoller")
    with pytest.raises(IncompatibleLibraryError, match=r"lacks createPoller.*reinstall it unmodified"):
        check_library()


def test_a_missing_attribute_of_the_instances_is_told(monkeypatch):
    monkeypatch.setattr(compat, "INSTANCE_NAMES", (*compat.INSTANCE_NAMES, "_SyncObj__raftVoters"))
    with pytest.raises(IncompatibleLibraryError, match="_SyncObj__raftVoters"):
        check_library()


def test_outside_of_a_world_the_library_is_as_shipped():
    assert abs(syncobj.monotonicTime() - time.monotonic()) < 60
    assert 0 <= syncobj.random.random() < 1
    assert syncobj.pickle.loads(syncobj.pickle.dumps([1])) == [1]


def test_inside_a_world_time_and_chance_come_from_it():
    with running(World(lambda: 7.0, random.Random(3))):
        assert syncobj.monotonicTime() == 7.0
        assert syncobj.monotonicTime() > 7.0
        assert syncobj.random.random() == random.Random(3).random()


def test_worlds_do_not_leak_into_each_other():
    one, other = (World(lambda value=value: value, random.Random(1)) for value in (1.0, 2.0))
    with running(one):
        with running(other):
            assert syncobj.monotonicTime() == 2.0
        assert syncobj.monotonicTime() == 1.0


@pytest.mark.parametrize("name", ["loads", "dumps"])
def test_inside_a_world_nothing_is_pickled(name):
    with (
        running(World(lambda: 1.0, random.Random(1))),
        pytest.raises(RuntimeError, match="pickle"),
    ):
        getattr(syncobj.pickle, name)(b"x")


def names_in(module):
    """All names that a module uses or defines, attributes and whole strings (as for `getattr`) among them."""
    for node in ast.walk(syntax_of(module)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name


def test_nobody_else_names_what_is_private_to_the_library():
    """Whoever needs it gives it a plain name in `quorum/raft/node.py`."""
    private = {*compat.METHOD_NAMES, *compat.INSTANCE_NAMES}
    found = {
        module: sorted({name for name in names_in(module) if name in private or "_SyncObj__" in name})
        for module in product_modules().keys() - KEEPERS
    }
    assert {module: names for module, names in found.items() if names} == {}
