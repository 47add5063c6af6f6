"""The timeline: the file that gets the whole story of a run.

A full file system while the story is written is no fault of the cluster, and the simulated code that happens to run
then must not see it. The file keeps the first error and writes nothing after it.
"""

from __future__ import annotations

import io
import os


class Timeline(io.TextIOWrapper):
    """A text file in UTF-8, made anew. Nothing but opening it raises OSError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(io.BufferedWriter(io.FileIO(path, "w")), encoding="utf-8")
        self.problem = ""
        """Why the file ends early; "" if it does not."""

    def write(self, text: str, /) -> int:
        """Appends to the story, while it can be written."""
        if not self.problem:
            try:
                return super().write(text)
            except OSError as error:
                self._failed(error)
        return len(text)

    def flush(self) -> None:
        """As any file's."""
        if not self.problem:
            try:
                super().flush()
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        """As any file's."""
        try:
            super().close()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.problem = self.problem or error.strerror or type(error).__name__
