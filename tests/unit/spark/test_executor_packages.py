"""Executors without an installation: a bare Python imports the connector from the packages of README's recipe alone.

The recipe is `pip install --target FOLDER .` with `BESIDE_KRAFT`. The folder is made here from what is installed, so
that no registry is asked. PySpark is not of it: executors have Spark's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from packaging.requirements import Requirement

from tests.support.source_tree import ROOT

BESIDE_KRAFT = ("pyarrow", "numpy", "pandas")
PACKAGES = ("kraft", "partitions", "pyspark_kraft", "quorum", "fetcher", "leader_epoch")
OF_SPARK = ("pyspark", "py4j")

PROGRAM = """
import pyarrow as pa
import pyspark.worker, pyspark.sql.worker.plan_data_source_read, pyspark.sql.worker.write_into_data_source
from pyspark_kraft import DefaultSource
from kraft.spark.offline.cluster import read_offline
from kraft.spark.stream import KraftStreamReader
from kraft.spark.write_options import parse_write_options
from kraft.spark.writer import WriteFailedError, write_rows
options = parse_write_options(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.delivery.timeout.ms": "100", "kafka.linger.ms": "5"}
)
try:
    write_rows(options, [pa.RecordBatch.from_pydict({"value": [b"x"]})])
except WriteFailedError:
    print(DefaultSource.name())
"""


def required(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they need."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # of another platform, or an extra's
        found.add(name)
        parsed = [Requirement(text) for text in needs]
        left += [one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def link(folder: Path, source: Path) -> None:
    if source.exists() and not (folder / source.name).exists():
        (folder / source.name).symlink_to(source)


def test_a_bare_python_has_all_that_it_needs_in_the_folder(tmp_path: Path) -> None:
    folder, spark = tmp_path / "packages", tmp_path / "spark"
    folder.mkdir()
    spark.mkdir()
    for package in PACKAGES:
        link(folder, ROOT / package)
    for name in required(("kraft", *BESIDE_KRAFT)) - {"kraft"}:
        made = distribution(name)
        for top in {file.parts[0] for file in made.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link(folder, Path(str(made.locate_file(top))))
    for name in OF_SPARK:
        link(spark, Path(str(distribution(name).locate_file(name))))
    assert not (folder / "pyspark").exists()
    done = subprocess.run(
        [str(Path(sys.base_prefix) / "bin" / "python3"), "-S", "-P", "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{folder}:{spark}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "kraft\n"), done.stderr
