"""Three dedicated controllers as processes in a scratch folder, started, killed and ended by pid."""

from __future__ import annotations

import http.client
import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.processes import ROOT
from kraft.runtime.free_ports import free_ports
from kraft.storage import format_node, new_uuid

START_TIMEOUT_S = 60.0
POLL_S = 0.005
LAST_WORDS_BYTES = 500

Settings = Mapping[str, str]


class Voters:
    """A quorum of dedicated controllers. Used as `with voters(…) as quorum`."""

    def __init__(self, directory: Path, count: int, settings: Settings, *, synced: bool) -> None:
        self.cluster_id = new_uuid()
        self.secret = secrets.token_urlsafe(24).encode()
        ports = free_ports(2 * count, avoid=set())
        self.addresses = {101 + n: f"127.0.0.1:{ports[2 * n]}" for n in range(count)}
        self._http = {101 + n: ports[2 * n + 1] for n in range(count)}
        self._folders = {voter: directory / f"voter-{voter}" for voter in self.addresses}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._module = ["kraft.cli.entry", "server"] if synced else ["bench.quorum.unsynced"]
        for voter, folder in self._folders.items():
            folder.mkdir(parents=True)
            lines = {
                "process.roles": "controller",
                "node.id": str(voter),
                "controller.quorum.voters": ",".join(f"{v}@{a}" for v, a in self.addresses.items()),
                "listeners": f"CONTROLLER://{self.addresses[voter]}",
                "controller.listener.names": "CONTROLLER",
                "controller.listener.secret": self.secret.decode(),
                "http.listener": f"127.0.0.1:{self._http[voter]}",
                "log.dirs": str(folder / "data"),
                **settings,
            }
            path = folder / "server.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            format_node(self.cluster_id, path, ignore_formatted=False)

    def start(self, voter: int) -> None:
        """Starts one voter's process, and does not wait for it."""
        folder = self._folders[voter]
        with (folder / "server.log").open("ab") as output:
            self._processes[voter] = subprocess.Popen(
                [sys.executable, "-m", *self._module, str(folder / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )

    def start_all(self) -> None:
        for voter in self.addresses:
            self.start(voter)
        for voter in self.addresses:
            self.await_ready(voter)

    def kill(self, voter: int) -> None:
        """SIGKILL; returns when the process is gone."""
        process = self._processes.pop(voter)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def await_ready(self, voter: int) -> None:
        """Waits until the voter says that it is ready. Raises BenchError."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._says(voter, "/health/ready").get("ready"):
            self._check(voter, deadline_s)

    def await_offset(self, voter: int, offset: int) -> None:
        """Waits until the voter has applied the metadata up to `offset`. Raises BenchError."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while int(self._says(voter, "/api/cluster").get("metadata_offset", -1)) < offset:
            self._check(voter, deadline_s)

    def _check(self, voter: int, deadline_s: float) -> None:
        if self._processes[voter].poll() is not None or time.monotonic() > deadline_s:
            words = (
                (self._folders[voter] / "server.log")
                .read_bytes()[-LAST_WORDS_BYTES:]
                .decode(errors="replace")
            )
            raise BenchError(f"voter {voter} does not get ready; it said: {words.strip()}")
        time.sleep(POLL_S)

    def _says(self, voter: int, page: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._http[voter], timeout=1.0)
        try:
            connection.request("GET", page)
            document: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return {}  # not up yet, or gone: the caller asks again, within its time
        finally:
            connection.close()
        return document

    def end(self) -> None:
        """Ends all processes, gently first."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def voters(
    directory: Path, settings: Settings | None = None, *, count: int = 3, synced: bool = True
) -> Iterator[Voters]:
    """A running quorum of `count` voters in a new folder `directory`."""
    quorum = Voters(directory, count, settings or {}, synced=synced)
    try:
        quorum.start_all()
        yield quorum
    finally:
        quorum.end()
