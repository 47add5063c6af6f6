"""Commands are imported here: one that a test is the first to name would keep what the test puts in others' place."""

from __future__ import annotations

from kraft.cli.app import application

application()
