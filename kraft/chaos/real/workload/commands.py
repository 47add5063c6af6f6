"""Programs of the user's own as clients: any command, run by the shell in a folder of its own until it ends or the
workload does (SIGTERM, then SIGKILL). Exit code 0, or an end by that SIGTERM (which a JVM tells as 143), is success.

Its environment has KRAFT_CHAOS_BOOTSTRAP (brokers, through the relays), KRAFT_CHAOS_CONFIG (of a secured cluster: a
file for librdkafka and --command-config), KRAFT_CHAOS_TOPIC, KRAFT_CHAOS_PARTITIONS,
KRAFT_CHAOS_SECONDS (how long the workload goes on), and KRAFT_CHAOS_HISTORY: the file to which it may write what it
did, as JSON lines, one an operation that has ended:

    {"op": "send", "process": "p1", "topic": "t", "partition": 0, "values": ["a1"], "status": "ok", "offset": 17,
     "acks": -1, "idempotent": true, "began": 1760000000.25, "ended": 1760000000.31}
    {"op": "poll", "process": "c1", "topic": "t", "partition": 0, "position": 17, "records": [[17, "a1"]], "next": 18,
     "status": "ok", "began": 1760000000.4, "ended": 1760000000.5}

`values` are strings, unique in their partition, and the records' whole values. `status`: ok, fail (certainly without
effect) or info (unknown). `offset` is the first one's (-1: nobody told); times are Unix seconds. acks is -1 (all), 0 or
1, and -1 if it is not said. A poll's `position` is where it read from; `"sought": true` says that it moved there on
purpose. The final phase reads the topics whatever the program does, so sends alone are enough.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraft.chaos.experiments.document import Workload
from kraft.chaos.experiments.evidence import CommandEnd
from kraft.chaos.history import History, OperationKind, OperationStatus
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.cluster import end_group
from kraft.chaos.real.faults.hosts import start_helper
from kraft.chaos.real.folders import HISTORY_VARIABLE
from kraft.chaos.real.workload.recorder import Recorder

HISTORY_FILE: Final = "history.jsonl"
OUTPUT_FILE: Final = "output.txt"
HISTORY_BYTES_MAX: Final = 256 * 1024 * 1024
OPERATIONS_MAX: Final = 1_000_000
PRINTED_CHARACTERS: Final = 2_000
ENDED_AS_ASKED: Final = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of programs that were told to end: by the signal, or as shells and JVMs tell of it."""


class HistoryError(ValueError):
    """A line of a program's history that cannot be read; the text names it."""


class Command:
    """One program."""

    def __init__(self, spec: Workload, number: int, folder: Path, helpers: Path) -> None:
        self._spec = spec
        self._name = f"command-{number}"
        self._folder = folder / self._name
        self._helpers = helpers
        self._process: subprocess.Popen[bytes] | None = None
        self._is_told_to_end = False

    def start(self, brokers: Brokers, topics: Mapping[str, int], seconds: float) -> None:
        """Starts it. `topics`: how many partitions each has."""
        self._folder.mkdir(parents=True)
        topic = self._spec.topic or next(iter(topics))
        environment = {
            **os.environ,
            "KRAFT_CHAOS_BOOTSTRAP": brokers.servers,
            **({} if brokers.config is None else {"KRAFT_CHAOS_CONFIG": str(brokers.config)}),
            "KRAFT_CHAOS_TOPIC": topic,
            "KRAFT_CHAOS_PARTITIONS": str(topics[topic]),
            "KRAFT_CHAOS_SECONDS": f"{seconds:g}",
            HISTORY_VARIABLE: str(self._history),
        }
        with (self._folder / OUTPUT_FILE).open("wb") as output:
            self._process = start_helper(
                self._helpers,
                self._name,
                ["/bin/sh", "-c", self._spec.command],
                output=output,
                cwd=self._folder,
                env=environment,
            )

    @property
    def _history(self) -> Path:
        return self._folder / (self._spec.history or HISTORY_FILE)

    def stop(self) -> None:
        """The workload is over."""
        if self._process is not None and self._process.poll() is None:
            self._is_told_to_end = True
            os.killpg(self._process.pid, signal.SIGTERM)

    def end(self, recorder: Recorder) -> CommandEnd:
        """Waits for its end and reads its history; a line that cannot be read is its failure."""
        process = self._process
        assert process is not None, "it was started"
        code: int | None
        try:
            code = process.wait(self._spec.timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        end_group(process.pid)
        process.wait()
        printed = (self._folder / OUTPUT_FILE).read_text(errors="replace")[-PRINTED_CHARACTERS:]
        try:
            operations = read_history(self._history, recorder)
        except HistoryError as error:
            return CommandEnd(self._spec.command, 1, 0, f"{error}\n{printed}")
        if self._is_told_to_end and code in ENDED_AS_ASKED:
            code = 0
        return CommandEnd(self._spec.command, code, operations, printed)


def read_history(file: Path, recorder: Recorder) -> int:
    """Enters the operations of a file; returns how many. No file: none. Raises HistoryError."""
    if not file.exists():
        return 0
    if file.stat().st_size > HISTORY_BYTES_MAX:
        raise HistoryError(f"{file.name} has more than {HISTORY_BYTES_MAX} bytes")
    number = 0
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if number > OPERATIONS_MAX:
                raise HistoryError(f"{file.name} has more than {OPERATIONS_MAX} operations")
            try:
                _enter(json.loads(line), recorder)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise HistoryError(f"{file.name}, line {number}: {type(error).__name__}: {error}") from error
    return number


def _enter(said: Mapping[str, Any], recorder: Recorder) -> None:
    topic, partition = str(said["topic"]), int(said["partition"])
    if not 0 <= partition < recorder.partitions.get(topic, 0):
        raise ValueError(f"the cluster has no partition {topic}-{partition}")
    is_send = {"send": True, "poll": False}[said["op"]]
    status = {"ok": OperationStatus.OK, "fail": OperationStatus.FAIL, "info": OperationStatus.INFO}[
        said["status"]
    ]
    began_s, ended_s = (
        float(said[key]) - recorder.unix_origin_s + recorder.origin_s for key in ("began", "ended")
    )
    acks = int(said.get("acks", -1))
    if acks not in (-1, 0, 1):
        raise ValueError(f"acks is -1, 0 or 1, not {acks}")
    operation = recorder.history.invoke(
        str(said["process"]),
        OperationKind.SEND if is_send else OperationKind.POLL,
        began_s,
        key=recorder.key(topic, partition),
        topic=topic,
        acks=acks,
        idempotent=bool(said.get("idempotent", False)),
        values=[str(value).encode() for value in said["values"]] if is_send else (),
        position=int(said.get("position", -1)),
        sought=bool(said.get("sought", False)),
    )
    History.complete(
        operation,
        status,
        ended_s,
        base_offset=int(said.get("offset", -1)),
        records=[] if is_send else [(int(at), str(value).encode()) for at, value in said["records"]],
        next_offset=int(said.get("next", -1)),
        error=str(said.get("error", "")),
    )
