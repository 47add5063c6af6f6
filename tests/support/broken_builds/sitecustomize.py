"""A deliberately broken build, for node processes that have this folder in PYTHONPATH: the mutations that
BROKEN_BUILD names are applied when the interpreter starts."""

from __future__ import annotations

import os
from contextlib import ExitStack

from tests.chaos.mutations import producer, replication

_applied = ExitStack()
"""Never closed: the process ends broken."""

for _mutation in (*producer.MUTATIONS, *replication.MUTATIONS):
    if _mutation.name in os.environ.get("BROKEN_BUILD", "").split(","):
        for _patch in _mutation.patches:
            _applied.enter_context(_patch.applied())
