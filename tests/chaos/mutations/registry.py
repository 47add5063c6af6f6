"""A mutation: one rule of the product broken from outside, and the oracle that must notice.

A mutation names its oracle beforehand; a run in which only others complain, or which crashes, does not count. It is
applied for the length of a `with`, in the forked process of one run, by replacing attributes of the product's
classes and modules: the product itself carries no switches. A patch refuses a target that does not exist, so that a
mutation cannot rot into one that breaks nothing (DeMillo, Lipton and Sayward, "Hints on test data selection", 1978;
here the programs under test are the judges).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

EQUIVALENT_MAX = 2
"""How many mutations may be argued not to matter."""


class NoSuchTargetError(LookupError):
    """The attribute that a patch replaces is not defined where it says."""


@dataclass(frozen=True)
class Patch:
    """One attribute replaced. `make` gets what is there (a descriptor stays one), and gives the new one."""

    owner: type | ModuleType
    name: str
    make: Callable[[Any], Any]

    def original(self) -> Any:
        """What is there now. Raises NoSuchTargetError unless the owner itself defines it."""
        if self.name not in vars(self.owner):
            raise NoSuchTargetError(f"{self.owner.__name__} defines no {self.name}")
        return inspect.getattr_static(self.owner, self.name)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the block runs, the attribute is the other one."""
        original = self.original()
        setattr(self.owner, self.name, self.make(original))
        try:
            yield
        finally:
            setattr(self.owner, self.name, original)


@contextmanager
def all_applied(patches: Sequence[Patch]) -> Iterator[None]:
    """All patches, in order; undone the other way round."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch.applied())
        yield


def replaced_by(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A `make` that does not care about what was there."""
    return lambda _: function


@dataclass(frozen=True)
class Sighting:
    """What the judges said of one run."""

    oracles: tuple[str, ...]
    """Every oracle that reported a violation, in the order of its first one."""
    texts: tuple[str, ...] = ()
    """The first text of each, in the same order."""
    error: str = ""
    """The run itself failed: no judge's word, so never a kill."""
    excused: bool = False


class Stage(Protocol):
    """Where a mutation plays: a kind of run, one for each seed, that is clean without the mutation."""

    @property
    def name(self) -> str: ...

    def play(self, seed: int) -> Sighting:
        """Runs one seed in this process."""


@dataclass(frozen=True)
class Mutation:
    """A broken rule."""

    name: str
    rule: str
    """What is broken, in a sentence."""
    oracles: tuple[str, ...]
    """Who must notice; several only where they are faces of one rule, and `faces` says which."""
    stage: Stage
    patches: tuple[Patch, ...]
    faces: str = ""
    equivalent: str = ""
    """The argument why no judge can notice; empty for all but `EQUIVALENT_MAX`."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the block runs, the rule is broken."""
        with all_applied(self.patches):
            yield


def by_name(mutations: Sequence[Mutation]) -> dict[str, Mutation]:
    """Checks what must be so of a registry. Raises ValueError."""
    named = {mutation.name: mutation for mutation in mutations}
    if len(named) != len(mutations):
        raise ValueError("two mutations have one name")
    for mutation in mutations:
        if not mutation.oracles:
            raise ValueError(f"{mutation.name} names no oracle")
        if len(mutation.oracles) > 1 and not mutation.faces:
            raise ValueError(f"{mutation.name} names several oracles, and does not say why")
    if sum(bool(mutation.equivalent) for mutation in mutations) > EQUIVALENT_MAX:
        raise ValueError(f"more than {EQUIVALENT_MAX} mutations are argued to be equivalent")
    return named
