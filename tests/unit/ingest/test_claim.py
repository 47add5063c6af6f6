"""One run at a time on a table, and none that is dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.ingest.claim import claimed
from kraft.ingest.model import TableError

HOLDER = """
import sys
from pathlib import Path
from kraft.ingest.claim import claimed
with claimed(Path(sys.argv[1]), "other"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_refused_by_name(tmp_path: Path) -> None:
    with claimed(tmp_path / "table", "first"):
        refusal = rf"in use by process {os.getpid()} on host .*\(run first\)"
        with pytest.raises(TableError, match=refusal), claimed(tmp_path / "table", "second"):
            pytest.fail("two runs hold the table")
    with claimed(tmp_path / "table", "third"):
        pass


def test_the_claim_of_a_killed_process_ends(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(TableError, match=f"process {holder.pid} "), claimed(tmp_path, "mine"):
            pytest.fail("two runs hold the table")
        holder.kill()
        holder.wait()
        with claimed(tmp_path, "mine"):
            pass
