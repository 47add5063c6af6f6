"""`kraft log`: looks at a log's files on disk, also while a broker uses them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.shared.options import Json, reflowed
from kraft.cli.shared.output import complain, print_json, print_line, progress
from kraft.cli.shared.streams import ReaderGoneError
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from partitions.log.inspection.files import FileKind, StoredDamage

app = typer.Typer(
    help="The files of a log on disk: what is in them, and whether they are sound.",
    rich_markup_mode="markdown",
)


@app.command()
@reflowed
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files of a log, or partition folders: all files in them."),
    ],
    print_data: Annotated[
        bool, typer.Option("--print-data", help="Print the records with key, value and headers.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Print the records of each batch, without data.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what is in segments, indexes, producer snapshots and checkpoints, one entry a line.

    Kinds are told by name: .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint,
    partition.metadata, truncation-checkpoint and the damage-note that a broker leaves in a folder; of a data
    directory the offset checkpoints, partition-directories (which partition lives in which data directory),
    the metadata position, meta.properties and the marker of a clean shutdown. Nothing is ever written; a broker
    may be running. Files are not compared with each other: that is what `kraft log verify` does.

    Exit code 0: shown; 1: a file is damaged: the sound entries are shown, file, byte and reason are told; 2:
    wrong usage; 3: a file could not be read.
    """
    found = _files(files)
    with_records = deep or print_data
    raise typer.Exit(_dump(found, with_records=with_records, with_data=print_data, as_json=as_json))


@app.command()
@reflowed
def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Data directories, partition folders, or files of a log."),
    ],
    compacted: Annotated[
        bool,
        typer.Option("--compacted", help="Offsets may be missing: the topics are (or were) compacted."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that a log's files are what was written.

    Every checksum; offsets, leader epochs and timestamps of all batches and records; indexes, producer
    snapshots and checkpoints against the batches. A write that a crash has torn is told from damage by what
    the data directory knows to have been flushed: it is a note. So is what a broker has noted of damage that it
    met, in damage-note; if that is still there, it is damage, and the next start refuses the log. Nothing is
    ever written; a broker may be running, and what changes meanwhile is read again.

    Exit code 0: sound; 1: damaged: file, byte and reason are told; 2: wrong usage; 3: not damaged as far as
    it could be read, and something could not.
    """
    from kraft.cli.log.verify import LogVerification, logs_below
    from kraft.runtime.read_only_disk import ReadOnlyDisk

    absolute = [os.path.abspath(path) for path in paths]
    for path in absolute:
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist", EXIT_USAGE)
    with progress("bytes", sum(map(logs_below, absolute))) as advance:
        verification = LogVerification(ReadOnlyDisk(advance), has_holes=compacted)
        for path in absolute:
            verification.check(path)
    if as_json:
        print_json(verification.document())
    else:
        for line in verification.lines():
            print_line(line)
    raise typer.Exit(verification.exit_code)


def _files(paths: list[Path]) -> list[tuple[str, FileKind]]:
    """The files to dump, with what they are. Raises UserError."""
    from partitions.log.inspection.files import file_kind, partition_of_folder

    found: list[tuple[str, FileKind]] = []
    for path in map(os.path.abspath, paths):
        if os.path.isdir(path):
            if partition_of_folder(path) is None:
                raise UserError(f"{path} is no partition's folder (TOPIC-NUMBER)", EXIT_USAGE)
            inner = [f"{path}/{name}" for name in sorted(_names(path))]
            found += [(name, kind) for name in inner if (kind := file_kind(name)) is not None]
            continue
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist", EXIT_USAGE)
        kind = file_kind(path)
        if kind is None:
            hint = "; `kraft metadata dump` shows a snapshot" if path.endswith(".checkpoint") else ""
            raise UserError(f"{path} is, by its name, no file that a log has{hint}", EXIT_USAGE)
        found.append((path, kind))
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}", EXIT_UNDECIDED) from error


def _dump(files: list[tuple[str, FileKind]], *, with_records: bool, with_data: bool, as_json: bool) -> int:
    from kraft.cli.log.dump import BatchDetail, JsonPrinter, LinePrinter, Printer, Shown, dump_file
    from kraft.runtime.read_only_disk import ReadOnlyDisk
    from partitions.log.inspection.files import FileTooLargeError

    printer: Printer = JsonPrinter() if as_json else LinePrinter()
    exit_code, first_error = EXIT_DONE, None
    disk = ReadOnlyDisk()
    try:
        for path, kind in files:
            printer.begin(path, kind)
            try:
                for step in dump_file(disk, path, kind, BatchDetail(with_records, with_data)):
                    if isinstance(step, Shown):
                        printer.show(step)
                        continue
                    printer.damage(step)
                    first_error, exit_code = first_error or str(step), EXIT_FAILED
                    _complain(step)
            except (OSError, FileTooLargeError) as error:
                reason = f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
                first_error, exit_code = first_error or reason, exit_code or EXIT_UNDECIDED
                _complain(reason)
            printer.end()
        printer.finish(first_error)
    except ReaderGoneError:
        pass  # the damage that was met until then counts
    return exit_code


def _complain(message: str | StoredDamage) -> None:
    sys.stdout.flush()
    complain(message)
