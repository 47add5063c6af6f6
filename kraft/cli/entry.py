"""The `kraft` command.

`kraft server` runs before the command-line libraries are imported: a node starts faster and smaller without them.
A failure that a user can cause ends as one sentence on standard error, with the exit code of `kraft.user_error`.
"""

from __future__ import annotations

import sys

from kraft.cli.shared.streams import open_closed_streams, tell_failed_output


def main() -> None:
    """Entry point of the console script; ends the process with the command's exit code."""
    open_closed_streams()
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "server" and not arguments[1].startswith("-"):
        from kraft.runtime.stacks import print_stacks_when_asked

        print_stacks_when_asked()  # also where the imports are, which take most of a start
        from kraft.cli.server import run_server

        sys.exit(run_server(arguments[1]))
    tell_failed_output()
    from kraft.cli.app import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
