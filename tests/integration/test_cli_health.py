"""`kraft cluster health` against a real cluster in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from kraft.cli.app import run
from tests.support.node_processes import until
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with threaded_cluster() as running:
        yield running


def test_healthy_ailing_and_healthy_again(
    cluster: ThreadedCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["cluster", "health", "--bootstrap-server", cluster.bootstrap]
    topic = cluster.create_topic("health", partitions=2, replication_factor=3, min_insync_replicas="3")
    assert run([*asked, "--exit-when-healthy", "--timeout", "60"]) == 0
    capfd.readouterr()
    assert run([*asked, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"healthy": True, "problems": []}

    cluster.kill(3)
    cluster.wait_seen(3, live=False)
    until(
        lambda: all(set(one.isrs) == {1, 2} for one in cluster.partitions(topic).values()),
        "the ISR lacks the broker that is gone",
    )
    assert run([*asked, "--json"]) == 1
    document = json.loads(capfd.readouterr().out)
    found = {(problem["kind"], problem["what"]) for problem in document["problems"]}
    assert document["healthy"] is False
    assert ("broker-fenced", "broker 3 is registered and fenced: it is down or cut off") in found
    assert ("under-replicated", f"{topic}-0 lacks in its ISR: 3") in found
    assert {kind for kind, what in found if f"{topic}-1 " in what} == {"under-min-isr", "under-replicated"}
    assert run(asked) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("not healthy: ")
    assert len(max(lines, key=len)) < 120

    starting = threading.Thread(target=cluster.start, args=(3,))
    starting.start()
    assert run([*asked, "--exit-when-healthy", "--timeout", "60"]) == 0
    starting.join()
    assert capfd.readouterr().out.splitlines()[-1].endswith(" healthy")


def test_nobody_answers(capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["cluster", "health", "--bootstrap-server", "127.0.0.1:1"]
    assert run([*asked, "--json"]) == 3
    document = json.loads(capfd.readouterr().out)
    assert (document["healthy"], document["problems"]) == (None, [])
    assert "no broker answers" in document["error"]
    assert run([*asked, "--watch", "--timeout", "0"]) == 3
    assert "could not tell: " in capfd.readouterr().out
