"""`kraft log-dirs`: every broker is asked by itself, and none that is away is passed over in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kraft.cli.app import run
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraft.protocol.schemas.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE
from tests.support.fake_broker import FakeCluster


class Disks(FakeCluster):
    """Broker N has N * 1000 bytes in each partition of `t`, and nothing of `u`."""

    code = ErrorCode.NONE
    offline: tuple[str, ...] = ()

    def answer(self, broker_id: int, request: Message) -> Message:
        if isinstance(request, DescribeClusterRequest):
            brokers = [
                DescribeClusterBroker(broker_id=number, host="127.0.0.1", port=1)
                for number in (*self._ports, 9)  # 9 is fenced
                if number != 9 or request.include_fenced_brokers
            ]
            return DescribeClusterResponse(cluster_id="fake", brokers=brokers)
        if not isinstance(request, DescribeLogDirsRequest):
            return super().answer(broker_id, request)
        with self.lock:
            self.requests.append((broker_id, request))
        if self.code:
            return DescribeLogDirsResponse(error_code=self.code)
        partitions = [DescribeLogDirsPartition(number, broker_id * 1000) for number in (0, 1)]
        result = DescribeLogDirsResult(
            log_dir="/data",
            topics=[DescribeLogDirsTopic("t", partitions)],
            total_bytes=2**30,
            usable_bytes=2**20,
        )
        lost = [
            DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
            for path in self.offline
        ]
        return DescribeLogDirsResponse(results=[result, *lost])


@pytest.fixture
def cluster() -> Iterator[Disks]:
    with Disks(2) as made:
        made.create_topic("t", leaders=(1, 2))
        yield made


def log_dirs(cluster: Disks, *arguments: str) -> int:
    return run(["log-dirs", *arguments, "--bootstrap-server", cluster.bootstrap])


def test_what_brokers_hold(cluster: Disks, capsys: pytest.CaptureFixture[str]) -> None:
    here = ("--broker", "2,1")
    assert log_dirs(cluster, *here, "--json") == EXIT_DONE
    assert json.loads(capsys.readouterr().out) == {
        "brokers": [
            {
                "id": number,
                "dirs": [
                    {
                        "path": "/data",
                        "total_bytes": 2**30,
                        "usable_bytes": 2**20,
                        "partitions": [
                            {"topic": "t", "partition": partition, "size_bytes": number * 1000}
                            for partition in (0, 1)
                        ],
                    }
                ],
            }
            for number in (1, 2)
        ]
    }
    assert log_dirs(cluster, *here) == EXIT_DONE
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["broker", "directory", "usable", "total", "topic", "partitions", "size"],
        ["1", "/data", "1048576", "1073741824", "t", "2", "2000"],
        ["2", "/data", "1048576", "1073741824", "t", "2", "4000"],
    ]


def test_what_is_shown_on_a_terminal(
    cluster: Disks, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kraft.cli.shared.output", "kraft.cli.log_dirs"):
        monkeypatch.setattr(f"{module}.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    cluster.offline = ("/lost",)
    assert log_dirs(cluster, "--broker", "2") == EXIT_FAILED
    assert capsys.readouterr().out.splitlines() == [
        "broker 2, /data: 1.0MiB of 1.0GiB left",
        "topic  partitions  size",
        "t      2           3.9KiB",
        "",
        "broker 2, /lost: offline",
    ]


def test_a_broker_that_is_away_is_told_of(cluster: Disks, capsys: pytest.CaptureFixture[str]) -> None:
    assert log_dirs(cluster, "--json") == EXIT_UNDECIDED
    first, second, away = json.loads(capsys.readouterr().out)["brokers"]
    assert [one["id"] for one in (first, second, away)] == [1, 2, 9]
    assert (away["dirs"], away["error"]) == ([], "BROKER_NOT_AVAILABLE")
    assert log_dirs(cluster) == EXIT_UNDECIDED
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert "broker 9" in shown.err
    assert log_dirs(cluster, "--broker", "7") == EXIT_UNDECIDED


def test_a_directory_that_is_offline_is_a_failure(cluster: Disks, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.offline = ("/lost",)
    assert log_dirs(cluster, "--broker", "1", "--json") == EXIT_FAILED
    _, lost = json.loads(capsys.readouterr().out)["brokers"][0]["dirs"]
    assert (lost["path"], lost["partitions"], lost["error"]) == ("/lost", [], "KAFKA_STORAGE_ERROR")
    assert log_dirs(cluster, "--broker", "1") == EXIT_FAILED
    assert "broker 1, /lost: " in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["t", "t.*"])
def test_topics_are_chosen_by_name_or_expression(topic: str, cluster: Disks) -> None:
    cluster.create_topic("u")
    assert log_dirs(cluster, "--topic", topic, "--broker", "1") == EXIT_DONE
    (request,) = cluster.asked(DescribeLogDirsRequest)
    assert [(one.topic, one.partitions) for one in request.topics] == [("t", [0, 1])]
    assert log_dirs(cluster, "--broker", "1") == EXIT_DONE
    assert cluster.asked(DescribeLogDirsRequest)[1].topics is None


def test_what_is_refused_and_what_is_wrong(cluster: Disks, capsys: pytest.CaptureFixture[str]) -> None:
    assert log_dirs(cluster, "--topic", "nosuch") == EXIT_FAILED
    assert log_dirs(cluster, "--topic", "[") == EXIT_USAGE
    assert log_dirs(cluster, "--broker", "x") == EXIT_USAGE
    cluster.code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    capsys.readouterr()
    assert log_dirs(cluster) == EXIT_FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "CLUSTER_AUTHORIZATION_FAILED" in shown.err
