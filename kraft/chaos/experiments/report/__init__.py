"""The report of a run: one page that a person reads, the same as JSON and as JUnit, and the file that was played.

`write_report` writes them into a folder; `page` draws the page, `summary` says what came of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.report.page import page
from kraft.chaos.experiments.report.summary import Run, document, junit

PAGE: Final = "report.html"

__all__ = ["Run", "write_report"]


def write_report(folder: Path, run: Run) -> Path:
    """Writes report.html, report.json, junit.xml and experiment.yaml into the folder, which is there. Returns the path
    of the page. Raises OSError."""
    path = folder / PAGE
    path.write_text(page(run), encoding="utf-8")
    (folder / "report.json").write_text(
        json.dumps(document(run, str(path)), indent=1) + "\n", encoding="utf-8"
    )
    (folder / "junit.xml").write_text(junit(run), encoding="utf-8")
    (folder / "experiment.yaml").write_text(run.experiment.text, encoding="utf-8")
    return path
