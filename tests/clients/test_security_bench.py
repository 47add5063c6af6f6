"""The benchmarks of security and of a change measure what they say, on real processes; how fast, is not asked.

Starting brokers and workers takes most of a small run. So the parts of security share one broker, and where it is not
workers that a part is about, two records from this process stand for their load.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.against import main as against
from bench.brokers import Cluster
from bench.pacing import paced
from bench.processes import ROOT
from bench.rows import Sample
from bench.security.__main__ import main
from bench.security.brokers import AUTHORIZED, SecuredBroker, ask_as_admin, secured
from bench.security.permissions import _crowd
from bench.turns import Turn, turn

ACLS, USERS = 300, 20
SMALL = ("--records", "6000", "--pairs", "1", "--costs-gb", "0.01")
Turns = Callable[..., Turn]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with ACLs, which lets the benchmark's client do what one of them allows."""
    with secured(tmp_path_factory.mktemp("security") / "broker", AUTHORIZED) as running:
        ask_as_admin(running, list(_crowd(ACLS, USERS)))
        yield running


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, broker: SecuredBroker) -> None:
    """All parts get that broker, instead of each its own."""

    @contextmanager
    def lent(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[SecuredBroker]:
        yield broker

    for module in ("tls", "permissions", "connections"):
        monkeypatch.setattr(f"bench.security.{module}.secured", lent)


@pytest.fixture
def light() -> Turns:
    """A turn of a few records, whose figures are scripted: the first is 1 of everything, the next one 2."""
    numbers = count(1)

    def light_turn(brokers: Cluster, bootstrap: str, *_: Any, single: bool) -> Turn:
        with brokers.topic(1, 1) as topic:
            host, port = bootstrap.split(":")
            asyncio.run(_few_records((host, int(port)), topic))
        number = float(next(numbers))
        sample = Sample(number, number, number, number)
        return Turn(sample, sample, sample if single else None)

    return light_turn


async def _few_records(address: tuple[str, int], topic: str) -> None:
    pacing = await paced(address, topic, 0)
    await asyncio.sleep(0)
    pacing.cancel()
    await pacing


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], list[Any]]:
    assert main([*SMALL, "--only", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document["figures"], document["limits"]


@pytest.mark.usefixtures("hasty_bench", "shared")
def test_connections(capsys: pytest.CaptureFixture[str]) -> None:
    parts = ("silent", "connects", "--connects", "10", "--connections", "40")
    found, limits = figures(capsys, *parts)
    silent, connects = found["silent"], found["connects"]
    for listener in ("PLAINTEXT", "TLS"):
        assert silent[listener]["connects_per_s"] > 0
        assert silent[listener]["usual_ms"] > 0
    assert silent["TLS"]["kib_each"] > 0, "these are the broker's first encrypted connections"
    for listener in ("SASL", "SASLTLS"):
        assert connects[listener]["connects_per_s"] > 0
        assert connects[listener]["broker_cpu_ms"] > 0
        assert 0 < connects[listener]["usual_ms"] <= connects[listener]["slowest_before_ms"]
    assert len(limits) == 4


@pytest.mark.usefixtures("hasty_bench", "shared")
def test_tls(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, light: Turns) -> None:
    def of_workers_if_encrypted(
        brokers: Cluster, bootstrap: str, records: int, settings: Mapping[str, str], *, single: bool
    ) -> Turn:
        if not settings:
            return light(brokers, bootstrap, single=single)
        assert bootstrap != brokers.bootstrap
        return turn(brokers, bootstrap, records, settings, single=True)

    monkeypatch.setattr("bench.security.tls.turn", of_workers_if_encrypted)
    found, limits = figures(capsys, "tls")
    [encrypted], [plain] = found["tls"]["runs"]["tls"], found["tls"]["runs"]["plaintext"]
    assert encrypted.keys() == {"produced", "consumed", "single"}
    assert all(figure > 0 for sample in encrypted.values() for figure in sample.values())
    rates = encrypted["consumed"]["records_per_s"], plain["consumed"]["records_per_s"]
    assert found["tls"]["consume"]["rate"] == pytest.approx(rates[0] / rates[1])
    costs = found["tls"]["costs_s_per_gb"]
    assert costs.pop("cipher_name")
    assert costs.keys() == {"sendfile", "copy", "cipher"}
    assert min(costs.values()) > 0
    assert len(limits) == 2


@pytest.mark.usefixtures("hasty_bench", "shared")
def test_permissions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, light: Turns
) -> None:
    monkeypatch.setattr("bench.security.permissions.turn", light)
    found, limits = figures(capsys, "permissions", "--acls", str(ACLS), "--users", str(USERS))
    permissions = found["permissions"]
    rates = {name: run["produced"]["records_per_s"] for name, [run] in permissions["runs"].items()}
    assert sorted(rates.values()) == [1, 2, 3], "each had a turn"
    for way in ("guarded", "crowded"):
        for part in ("produced", "consumed", "single"):
            ratio = pytest.approx(rates[way] / rates["open"])
            assert permissions[way][part] == {"rate": ratio, "cpu": ratio}
    assert len(limits) == 8


@pytest.mark.usefixtures("hasty_bench")
def test_a_checkout_beside_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, light: Turns
) -> None:
    monkeypatch.setattr("bench.against.turn", light)
    assert against([str(ROOT), *SMALL[:4], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["figures"]["against"]
    cpu = [found["runs"][side][0]["produced"]["broker_cpu_s_per_gb"] for side in ("this", "other")]
    assert sorted(cpu) == [1, 2], "each had a turn"
    assert found["produced"]["cpu"] == pytest.approx(cpu[0] / cpu[1])
    assert found["commits"]["this"] == found["commits"]["other"]
    assert len(document["limits"]) == 3


def test_what_is_no_checkout_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        against(["/"])
    assert "is no checkout of this project" in capsys.readouterr().err
