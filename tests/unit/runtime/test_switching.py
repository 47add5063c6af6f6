"""How soon a node's event loop gets the interpreter lock back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.cli import server
from kraft.runtime.switching import SWITCH_INTERVAL_S, switch_often


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_jobs_let_go_of_the_lock_sooner_than_pythons_default() -> None:
    switch_often()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)


def test_a_node_does_so_before_anything_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "configure_logs", lambda: None)
    monkeypatch.setattr(server, "collect_seldom", lambda: None)
    assert server.run_server(f"{tmp_path}/nothing") == server.EXIT_FAILED
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
