"""The commands of `kraft metadata shell`: a small shell over a tree of metadata, for people and scripts.

`MetadataShell.run` executes one line and yields its output piece by piece; a user's mistake is a ShellError.
`interact` is the loop around it on a terminal: a prompt, tab completion, a bounded history, bounded output.
"""

from __future__ import annotations

import cmd
import json
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from kraft.metadata_view.tree import TreeFolder, TreeNode, walk
from kraft.user_error import EXIT_DONE, EXIT_FAILED

HISTORY_LINES = 500
INTERACTIVE_LINES = 1000
"""One command prints no more on a terminal; a command of a script prints everything."""
PROMPT = ">> "
_WILDCARDS = frozenset("*?[")

HELP = """\
cat PATH…            print values; folders have none
cd [PATH]            go to a folder, / without PATH
exit, quit           leave
find [PATH] [GLOB]   all paths below a folder whose last name fits
help                 this text
history [N]          the last lines that were typed
ls [PATH…]           the names in folders
pwd                  the folder that paths are taken from
tree [PATH]          a folder with everything below it
Paths are absolute or relative; * ? [abc] stand for names in them. Quote what has spaces in it."""


class ShellError(Exception):
    """A line that cannot be executed; the message is a sentence."""


class ShellUsageError(ShellError):
    """A line that no tree could make sense of: no such command, or not its arguments."""


class Leave(Exception):
    """The user wants to leave."""


class MetadataShell:
    """Where one user stands in a tree."""

    def __init__(self, root: TreeFolder) -> None:
        self._root = root
        self._cwd: tuple[str, ...] = ()
        self.history: deque[str] = deque(maxlen=HISTORY_LINES)
        self._commands: dict[str, Callable[[list[str]], Iterator[str]]] = {
            "cat": self._cat,
            "cd": self._cd,
            "exit": self._exit,
            "find": self._find,
            "help": self._help,
            "history": self._history,
            "ls": self._ls,
            "pwd": self._pwd,
            "quit": self._exit,
            "tree": self._tree,
        }

    @property
    def cwd(self) -> str:
        """The path of the folder that relative paths start from."""
        return _text(self._cwd)

    def run_line(self, line: str) -> Iterator[str]:
        """Executes a line as it was typed. Yields lines without their ends. Raises ShellError, Leave."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ShellUsageError(f"the line cannot be understood: {error}") from error
        if words:
            self.history.append(line.strip())
            yield from self.run(words)

    def run(self, words: list[str]) -> Iterator[str]:
        """Executes a command and its arguments. Yields lines. Raises ShellError, Leave."""
        command = self._commands.get(words[0])
        if command is None:
            raise ShellUsageError(f"there is no command {words[0]}; help tells which there are")
        yield from command(words[1:])

    def complete(self, line: str) -> list[str]:
        """How the last word of a line could go on: commands first, then paths; folders end with /."""
        words = line.split(" ")
        if len(words) == 1:
            return [name for name in sorted(self._commands) if name.startswith(line)]
        folder_text, separator, start = words[-1].rpartition("/")
        try:
            folder = self._node(folder_text + separator if separator else ".")
        except ShellError:
            return []
        if not isinstance(folder, TreeFolder):
            return []
        return [
            folder_text + separator + name + ("/" if isinstance(child, TreeFolder) else "")
            for name, child in folder.children.items()
            if name.startswith(start)
        ]

    # -- commands

    def _pwd(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 0, "pwd")
        yield self.cwd

    def _cd(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 1, "cd [PATH]")
        found = self._match(arguments[0]) if arguments else [((), self._root)]
        if len(found) != 1:
            raise ShellError(f"{arguments[0]} names {len(found)} places")
        path, node = found[0]
        if not isinstance(node, TreeFolder):
            raise ShellError(f"{_text(path)} is a value; cat prints it")
        self._cwd = path
        yield from ()

    def _ls(self, arguments: list[str]) -> Iterator[str]:
        found = [match for argument in arguments or ["."] for match in self._match(argument)]
        for number, (path, node) in enumerate(found):
            if not isinstance(node, TreeFolder):
                yield _text(path)
                continue
            if len(found) > 1:
                yield from ([""] if number else [])
                yield f"{_text(path)}:"
            yield from node.children

    def _cat(self, arguments: list[str]) -> Iterator[str]:
        if not arguments:
            raise ShellUsageError("cat needs a path")
        for argument in arguments:
            for path, node in self._match(argument):
                if isinstance(node, TreeFolder):
                    raise ShellError(f"{_text(path)} is a folder; ls lists it")
                yield _shown(node.content)

    def _tree(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 1, "tree [PATH]")
        for path, node in self._match(arguments[0] if arguments else "."):
            if not isinstance(node, TreeFolder):
                yield _text(path)
                continue
            yield _text(path)
            yield from _branches(node, "  ")

    def _find(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 2, "find [PATH] [GLOB]")
        pattern = arguments[1] if len(arguments) > 1 else "*"
        for path, node in self._match(arguments[0] if arguments else "."):
            for text, _ in walk(node, _text(path)):
                if fnmatchcase(text.rpartition("/")[2], pattern):
                    yield text

    def _history(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 1, "history [N]")
        count = arguments[0] if arguments else str(HISTORY_LINES)
        if not count.isdecimal():
            raise ShellUsageError(f"history takes how many lines to show, not {count}")
        yield from list(self.history)[max(0, len(self.history) - int(count)) :]

    def _help(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 0, "help")
        yield from HELP.splitlines()

    def _exit(self, arguments: list[str]) -> Iterator[str]:
        _take(arguments, 0, "exit")
        raise Leave

    # -- paths

    def _node(self, text: str) -> TreeNode:
        """The node at a path without wildcards."""
        node: TreeNode = self._root
        for name in self._resolve(text):
            child = node.children.get(name) if isinstance(node, TreeFolder) else None
            if child is None:
                raise ShellError(f"there is no {text}")
            node = child
        return node

    def _resolve(self, text: str) -> tuple[str, ...]:
        parts = [] if text.startswith("/") else list(self._cwd)
        for part in text.split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return tuple(parts)

    def _match(self, text: str) -> list[tuple[tuple[str, ...], TreeNode]]:
        """Path and node of everything that a path with wildcards names; at least one."""
        found: list[tuple[tuple[str, ...], TreeNode]] = [((), self._root)]
        for name in self._resolve(text):
            found = [
                ((*path, child_name), child)
                for path, node in found
                if isinstance(node, TreeFolder)
                for child_name, child in _named(node, name)
            ]
        if not found:
            raise ShellError(f"there is no {text}")
        return found


def _named(folder: TreeFolder, name: str) -> Iterator[tuple[str, TreeNode]]:
    if name in folder.children:
        yield name, folder.children[name]
    elif not _WILDCARDS.isdisjoint(name):
        for child_name, child in folder.children.items():
            if fnmatchcase(child_name, name):
                yield child_name, child


def _branches(folder: TreeFolder, indent: str) -> Iterator[str]:
    for name, child in folder.children.items():
        if isinstance(child, TreeFolder):
            yield f"{indent}{name}/"
            yield from _branches(child, indent + "  ")
        else:
            yield f"{indent}{name}"


def _text(path: tuple[str, ...]) -> str:
    return "/" + "/".join(path)


def _shown(content: Any) -> str:
    """A text as it is, everything else as JSON; of an object each field has a line."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        return "{\n" + ",\n".join(lines) + "\n}"
    return json.dumps(content)


def _take(arguments: list[str], most: int, usage: str) -> None:
    if len(arguments) > most:
        raise ShellUsageError(f"too many arguments: {usage}")


class _Terminal(cmd.Cmd):
    """The standard library's command loop, for its prompt and its completion."""

    identchars = "abcdefghijklmnopqrstuvwxyz"

    def __init__(self, shell: MetadataShell, report: Callable[[str], None]) -> None:
        super().__init__()
        self._shell = shell
        self._report = report
        self.prompt = f"/ {PROMPT}"

    def onecmd(self, line: str) -> bool:
        if line == "EOF":
            print()
            return True
        lines = self._shell.run_line(line)
        try:
            for text in islice(lines, INTERACTIVE_LINES):
                print(text)
            if next(lines, None) is not None:
                self._report(f"… and more: only the first {INTERACTIVE_LINES} lines are shown here")
        except ShellError as error:
            self._report(str(error))
        except Leave:
            return True
        self.prompt = f"{self._shell.cwd} {PROMPT}"
        return False

    def emptyline(self) -> bool:
        return False

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        return self._shell.complete(text)

    def completedefault(self, text: str, line: str, begin: int, end: int) -> list[str]:
        return self._shell.complete(line[:end])


def interact(shell: MetadataShell, report: Callable[[str], None]) -> int:
    """Reads lines from standard input until its end. On a terminal with prompt and completion; otherwise
    as a script that ends with the first line that fails. Returns the exit code."""
    if sys.stdin.isatty():
        _complete_whole_paths()
        _Terminal(shell, report).cmdloop("Metadata as a tree of folders; help tells the commands.")
        return EXIT_DONE
    for line in sys.stdin:
        try:
            for text in shell.run_line(line):
                print(text)
        except ShellError as error:
            report(str(error))
            return EXIT_FAILED
        except Leave:
            break
    return EXIT_DONE


def _complete_whole_paths() -> None:
    """Completion takes a word for what stands between spaces: names have - and . in them."""
    try:
        import readline
    except ImportError:  # a Python without it: lines are read without editing
        return
    readline.set_completer_delims(" ")
