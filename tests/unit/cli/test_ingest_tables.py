"""`kraft ingest audit`, `optimize` and `vacuum`: what they print and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from kraft.cli.app import run
from kraft.cli.ingest.vacuum import parse_retention
from kraft.ingest.claim import claimed
from kraft.user_error import UserError
from tests.support.fake_broker import FakeCluster
from tests.support.ingest_lake import Lake

Kraft = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with FakeCluster() as cluster:
        yield Lake(cluster, tmp_path / "table", "parquet")


@pytest.fixture
def kraft(lake: Lake, capsys: pytest.CaptureFixture[str]) -> Kraft:
    def call(command: str, *arguments: str) -> tuple[int, str, str]:
        servers = ["--bootstrap-server", lake.cluster.bootstrap] if command == "audit" else []
        code = run(["ingest", command, str(lake.folder), *arguments, *servers])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_a_complete_table(lake: Lake, kraft: Kraft) -> None:
    lake.ingest_in_cuts()
    code, output, _ = kraft("audit")
    assert code == 0
    assert output.splitlines() == [
        "topic   partition  from  to  rows  missing  duplicated  different",
        "orders  0          0     30  30    0        0           0",
        "orders  1          0     12  12    0        0           0",
        "complete",
    ]


def test_faults_are_named(lake: Lake, kraft: Kraft) -> None:
    lake.ingest_in_cuts()
    (lake.folder / (gone := lake.files()[1].path)).unlink()
    code, output, _ = kraft("audit")
    assert code == 1
    assert "orders-0: missing: offsets 10 to 19\n" in output
    assert output.endswith(f"file {gone} is referenced and not there\nnot complete\n")
    code, output, _ = kraft("audit", "--json")
    found: dict[str, Any] = json.loads(output)
    assert (code, found["complete"], found["missing"], found["duplicated"]) == (1, False, 10, 0)
    assert found["partitions"][0]["missing_offsets"] == [[10, 20]]


def test_what_cannot_be_told(lake: Lake, kraft: Kraft) -> None:
    lake.ingest_in_cuts()
    lake.first.log_start_offset = 13
    code, output, _ = kraft("audit")
    assert code == 3
    assert "orders-0: not proved: offsets 0 to 12: the cluster has deleted these records\n" in output
    code, output, _ = kraft("audit", "--json")
    assert (code, json.loads(output)["complete"]) == (3, None)


def test_no_table(lake: Lake, kraft: Kraft) -> None:
    for command in ("audit", "optimize", "vacuum"):
        code, output, errors = kraft(command)
        assert code == (2 if command == "audit" else 1)
        assert not output
        assert "no table" in errors


def test_small_files_are_merged_and_removed(lake: Lake, kraft: Kraft) -> None:
    lake.ingest_in_cuts()
    code, output, _ = kraft("optimize", "--json")
    assert (code, json.loads(output)["merged_files"]) == (0, 6)
    assert kraft("optimize")[:2] == (0, "nothing to merge\n")
    code, output, errors = kraft("vacuum", "--retention", "0s")
    assert (code, output) == (2, "")
    assert "add --force" in errors
    assert kraft("vacuum")[:2] == (0, "0 files removed\n")
    assert "6 files would be removed" in kraft("vacuum", "--retention", "0s", "--force", "--dry-run")[1]
    assert len(json.loads(kraft("vacuum", "--retention", "0s", "--force", "--json")[1])["removed"]) == 6
    assert kraft("audit")[0] == 0


def test_a_table_in_use_is_refused(lake: Lake, kraft: Kraft) -> None:
    lake.ingest_in_cuts()
    with claimed(lake.folder, "another"):
        for command in ("optimize", "vacuum"):
            code, _, errors = kraft(command)
            assert code == 1
            assert "is in use by process" in errors
        assert kraft("audit")[0] == 0


def test_retentions() -> None:
    assert [parse_retention(text) for text in ("0s", "30m", "12h", "7d")] == [0, 1800, 43200, 604800]
    for text in ("", "7", "-1d", "1w", "7days"):
        with pytest.raises(UserError, match="such as 7d"):
            parse_retention(text)
