"""What a check of stored files found, and how much it has looked at.

Guarantees: an error is damage and nothing else; what a crash or a running broker explains is a note; a
file that could not be read is neither. Every finding names its file, and the byte where there is one. A
file that is wrong throughout fills no memory: of each, the first findings are kept and the rest counted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from partitions.log.inspection.files import FileTooLargeError, StoredDamage

KEPT_PER_FILE: Final = 20


class Finding(NamedTuple):
    """One thing to tell about a file; `position` is a byte in it, None for the file as a whole."""

    path: str
    position: int | None
    reason: str

    def __str__(self) -> str:
        at = "" if self.position is None else f" at byte {self.position}"
        return f"{self.path}{at}: {self.reason}"


@dataclass
class Findings:
    """Collects what is found."""

    errors: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    unreadable: list[Finding] = field(default_factory=list)
    partitions: int = 0
    files: int = 0
    batches: int = 0
    records: int = 0
    log_bytes: int = 0
    """Of the `.log` files that were read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Findings that are not kept, by file."""

    def error(self, path: str, position: int | None, reason: str) -> None:
        self._keep(self.errors, Finding(path, position, reason))

    def note(self, path: str, position: int | None, reason: str) -> None:
        self._keep(self.notes, Finding(path, position, reason))

    def _keep(self, kept: list[Finding], finding: Finding) -> None:
        if sum(known.path == finding.path for known in kept[-KEPT_PER_FILE:]) < KEPT_PER_FILE:
            kept.append(finding)
        else:
            self.left_out[finding.path] += 1

    def add(self, other: Findings) -> None:
        """Takes over what another check found."""
        for name, found in vars(other).items():
            setattr(self, name, getattr(self, name) + found)

    @contextlib.contextmanager
    def reading(self, path: str, *, is_rebuilt: bool = False) -> Iterator[None]:
        """Counts a file, and takes note of what goes wrong with it; the block ends there.

        Damage to a file that the next start makes anew (`is_rebuilt`) is a note.
        """
        self.files += 1
        try:
            yield
        except StoredDamage as damage:
            if is_rebuilt:
                self.note(damage.path, damage.position, f"{damage.reason}; the next start makes it anew")
            else:
                self.error(damage.path, damage.position, damage.reason)
        except FileNotFoundError:
            self.files -= 1
            self.note(path, None, "it was removed or renamed while it was to be read")
        except FileTooLargeError as error:
            self.unreadable.append(Finding(path, None, str(error)))
        except OSError as error:
            self.unreadable.append(Finding(path, None, f"it cannot be read: {error.strerror or error}"))
