"""A Spark session on this machine, ready for `format("kraft")`: for the demo, scripts, notebooks, tests.

It starts with the Java that there is (`java.py`), runs Python workers with this very interpreter and this very copy of
`kraft`, listens on loopback only, prints nothing on standard output, logs only errors, and shows timestamps in UTC.
Tasks are tried three times: a plain `local[N]` never retries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kraft.spark.java import find_java_home

TASK_ATTEMPTS = 3
_LOOPBACK = "127.0.0.1"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def local_session(app_name: str, *, cores: int = 2, **conf: str) -> SparkSession:
    """The session of this process, started if there is none yet. Stop it with `.stop()`.

    `conf` are further settings of Spark and win: `**{"spark.sql.shuffle.partitions": "2"}`. Raises
    NoJavaError. Takes some seconds.
    """
    return start_session(app_name, f"local[{cores}]", conf)


def start_session(
    app_name: str, master: str, conf: Mapping[str, str] = MappingProxyType({}), *, apart: bool = False
) -> SparkSession:
    """The same with any master: `local[N]` gets attempts, others need `kraft` installed where their executors run.

    `apart`: a signal to this process's group does not reach the JVM, which ends when this process does. For the first
    session of a process only.
    """
    is_local = master.startswith("local")
    only_here = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK} if is_local else {}
    if is_local and master.endswith("]") and "," not in master:
        master = f"{master[:-1]},{TASK_ATTEMPTS}]"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **only_here,
        **conf,
        # A later one wins, so a log configuration in `conf` does.
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()} {conf.get(_JAVA_OPTIONS, '')}".strip(),
    }
    settled = SparkConf().setAppName(app_name).setMaster(master).setAll(list(settings.items()))
    with _environment(
        JAVA_HOME=str(find_java_home()),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONPATH=_python_path(),
        **({"SPARK_LOCAL_IP": _LOOPBACK} if is_local else {}),
    ):
        if apart:
            SparkContext(conf=settled, gateway=launch_gateway(settled, {"start_new_session": True}))
        return SparkSession.builder.config(conf=settled).getOrCreate()


def _python_path() -> str:
    """For Spark's Python workers: a checkout that kraft runs from, before what was set.

    An installed kraft is found without; its folder must not come before the standard library.
    """
    here = Path(__file__).resolve().parents[2]
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    checkout = [] if here.name in ("site-packages", "dist-packages") else [str(here)]
    return os.pathsep.join(dict.fromkeys([*checkout, *given]))


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Sets variables while the JVM starts: it and its Python workers inherit them, later children do not."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
