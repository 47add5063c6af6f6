"""How a command fails: a sentence for a person, an exit code for a script. Not only `kraft.cli` raises it."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 3


class UserError(Exception):
    """Something that the user can mend; the message is a sentence that says what to do."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
