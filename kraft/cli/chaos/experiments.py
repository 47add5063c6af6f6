"""`kraft chaos run`, `list` and `explain`: experiments from files, and what came of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, fail, print_json, print_line, print_rows, print_table
from kraft.cli.shared.tables import Rows
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE

if TYPE_CHECKING:
    from kraft.chaos.experiments.document import Experiment, Step
    from kraft.chaos.experiments.report.summary import Run
    from kraft.chaos.experiments.vocabulary import FaultWord

COLUMNS = 80
SEED = 1
COLOURS = {"held": "green", "undecided": "yellow", "violated": "red"}
REASONS_SHOWN_MAX = 12
RUNS = Path("chaos-runs")

Name = Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file, or a name of `kraft chaos list`.")]


def run(
    name: Name,
    backend: Annotated[
        str | None,
        typer.Option(help="sim or real; by default the first that the file names.", show_default=False),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Decides a simulated run completely, and what a real one draws.")
    ] = SEED,
    duration: Annotated[
        str | None,
        typer.Option(metavar="5s", help="How long, instead of the file's duration.", show_default=False),
    ] = None,
    backlog: Annotated[
        str | None,
        typer.Option(
            metavar="50MB", help="Of a slow consumer, instead of the file's backlog.", show_default=False
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="Real nodes with TLS, users and ACLs; clients are the cluster's admin."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"Where the report goes; by default {RUNS}/NAME-BACKEND-SEED.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Play an experiment and judge it: its faults, its evidence, its verdict, one page.

    Exit code 0: as the file expects; 1: not; 2: wrong usage; 3: it could not be decided.
    """
    from kraft.chaos.experiments.backends import backend_of, lasting, play_on, with_backlog
    from kraft.chaos.experiments.report import write_report
    from kraft.chaos.experiments.report.summary import Run, document
    from kraft.chaos.experiments.shelf import find
    from kraft.chaos.experiments.units import UnitError, bytes_of, seconds_of
    from kraft.chaos.experiments.verdict import judge

    experiment = find(name)
    world = backend_of(experiment, backend)
    if duration is not None:
        try:
            experiment = lasting(experiment, seconds_of(duration))
        except UnitError as error:
            fail(f"--duration: {error}", EXIT_USAGE)
    if backlog is not None:
        try:
            experiment = with_backlog(experiment, int(bytes_of(backlog)))
        except UnitError as error:
            fail(f"--backlog: {error}", EXIT_USAGE)
    folder = RUNS / f"{experiment.name}-{world}-{seed}" if out is None else out
    make_folder(folder)
    console.print(f"[dim]{experiment.name} on {world}, seed {seed}, {experiment.duration_s:g} s …[/dim]")
    with ends_like_ctrl_c():
        evidence = play_on(world, experiment, seed, folder, say, secure=secure)
    options = ["--backend", world, "--seed", str(seed), *(["--duration", duration] if duration else [])]
    options += ["--backlog", backlog] if backlog else []
    options += ["--secure"] if secure else []
    done = Run(
        experiment,
        evidence,
        judge(experiment, evidence),
        shlex.join(["kraft", "chaos", "run", name, *options]),
    )
    page = write_report(folder, done)
    if as_json:
        print_json(document(done, str(page)))
    else:
        _print(done, page)
    raise typer.Exit(exit_code(done))


def say(text: str) -> None:
    console.print(text, style="dim", markup=False)


def exit_code(done: Run) -> int:
    """0: as expected; 1: not; 3: undecided."""
    if done.verdict.as_expected:
        return EXIT_DONE
    return EXIT_UNDECIDED if done.verdict.verdict == "undecided" else EXIT_FAILED


def list_experiments(as_json: Json = False) -> None:
    """List the experiments that are shipped: what each teaches, where it runs, and what is expected."""
    from kraft.chaos.experiments.shelf import library

    experiments = library()
    if as_json:
        print_json({"experiments": [_row(one) for one in experiments.values()]})
        return
    table = Rows(["name", "backends", "expect", "teaches"])
    for one in experiments.values():
        table.add(one.name, ",".join(one.backends), _expectation(one), one.teaches)
    print_rows(table)


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|NAME",
            help="A file, or a name of `kraft chaos list`; without it: the words of the files.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell what an experiment does and teaches, before anything is done; or how a file is written."""
    from kraft.chaos.experiments.shelf import find

    if name is None:
        if as_json:
            print_json(_words())
            return
        for line in file_format():
            print_line(line)
        return
    experiment = find(name)
    if as_json:
        print_json({"experiments": [_row(experiment)]})
        return
    for line in explanation(experiment, name):
        print_line(line)


def explanation(experiment: Experiment, name: str) -> list[str]:
    """An experiment for people, at most 80 columns wide."""
    from kraft.chaos.experiments.shelf import lesson

    cluster = experiment.cluster
    topics = [
        f"{one.name}: partitions {one.partitions}, replicas {one.replicas}"
        + "".join(f", {key}={value}" for key, value in one.configs.items())
        for one in cluster.topics
    ]
    settings = [f"{key}={value}" for key, value in cluster.settings.items()]
    workload = [
        f"{one.clients} {one.kind}" + (f" on {one.topic}" if one.topic else "") + _workload_details(one)
        for one in experiment.workload
    ]
    probes = [
        f"{one.name} {one.tolerance}, {' and '.join(w for w in ('before', 'during', 'after') if w in one.when)}"
        for one in experiment.hypothesis.probes
    ]
    lessons = lesson(experiment) or experiment.teaches
    parts: list[tuple[str, list[str]]] = [
        ("What it teaches", [lessons]),
        ("Cluster", [f"{cluster.nodes} nodes", *settings, *topics]),
        ("Workload", workload),
        ("Steady state", probes or ["not measured"]),
        (f"Method, {experiment.duration_s:g} s", [_step(one) for one in experiment.method] or ["no fault"]),
        ("Expected", [_expectation(experiment), *(one.text for one in experiment.promises)]),
        ("Run it", [f"kraft chaos run {shlex.quote(name)} --backend {one}" for one in experiment.backends]),
    ]
    lines = _folded(f"{experiment.name}: {experiment.teaches}", 0)
    for title, texts in parts:
        lines += [
            "",
            title,
            *(line for text in texts for line in _folded(text, 2, hanging=text is not lessons)),
        ]
    return lines


def file_format() -> list[str]:
    """How a file is written, at most 80 columns wide: an example, and all words; keys in [] may be left out."""
    from kraft.chaos.experiments.document import EXAMPLE
    from kraft.chaos.experiments.targets import GRAMMAR

    lines = ["An experiment is a YAML file like this one:", "", *EXAMPLE.splitlines(), "", "Targets"]
    lines += _folded(GRAMMAR, 2)
    for title, words in _words().items():
        lines += ["", title.capitalize()]
        for one in words:
            keys = [key if key in one["needed"] else f"[{key}]" for key in one["keys"]]
            told = f" ({', '.join(keys)})" if keys else ""
            only = "" if len(one["backends"]) > 1 else f"; only {one['backends'][0]}"
            lines += _folded(f"{one['name']}{told}: {one['doc']}{only}", 2)
    return lines


def _words() -> dict[str, list[dict[str, Any]]]:
    from kraft.chaos.experiments.vocabulary import BOTH, FAULTS, PROBES, WORKLOADS

    def row(
        name: str, doc: str, keys: Iterable[str], needed: Iterable[str], backends: Iterable[str]
    ) -> dict[str, Any]:
        return {
            "name": name,
            "doc": doc,
            "keys": sorted(keys),
            "needed": sorted(needed),
            "backends": sorted(backends, reverse=True),
        }

    faults = []
    for name, fault in FAULTS.items():
        times = {key for key, has in (("for", fault.lasts), ("ramp", fault.ramps)) if has}
        needed = fault.required | ({"for"} if fault.lasts else set())
        faults.append(row(name, _told(fault), times.union(fault.parameters), needed, fault.backends))
    probes = [row(name, one.doc, ("at-least", "at-most"), (), BOTH) for name, one in PROBES.items()]
    workloads = [row(name, one.doc, one.keys, one.required, one.backends) for name, one in WORKLOADS.items()]
    return {"faults": faults, "probes": probes, "workloads": workloads}


def _told(fault: FaultWord) -> str:
    """Its text, and the words that its parameters may be."""
    choices = [f"{key}: {' / '.join(kind)}" for key, kind in fault.parameters.items() if not callable(kind)]
    return "; ".join((fault.doc, *choices))


def _workload_details(one: Any) -> str:
    acks = {0: ", acks=0", 1: ", acks=1", -1: ""}[one.acks]
    who = (
        f", group {one.group}"
        if one.group
        else f", id {one.transactional_id}"
        if one.transactional_id
        else ""
    )
    return f"{acks}{who}: {one.command}" if one.command else f"{acks}{who}, {one.rate:g}/s"


def _step(step: Step) -> str:
    lasts = f" for {step.for_s:g} s" if step.for_s else ""
    ramp = f", within {step.ramp_s:g} s" if step.ramp_s else ""
    words = "".join(f", {key} {value}" for key, value in step.parameters.items())
    return f"{step.at_s:g} s: {step.fault} of {step.target.text}{lasts}{words}{ramp}"


def _folded(text: str, by: int, *, hanging: bool = True) -> list[str]:
    """Paragraphs, indented; `hanging`: further lines of one a little more."""
    prefix, further = " " * by, "  " if hanging else ""
    lines = []
    for paragraph in text.split("\n\n"):
        folded = fill(
            " ".join(paragraph.split()), COLUMNS - by, break_long_words=False, subsequent_indent=further
        )
        lines += indent(folded, prefix).splitlines()
    return lines


def _row(experiment: Experiment) -> dict[str, Any]:
    from kraft.chaos.experiments.report.summary import expectation

    return {
        "name": experiment.name,
        "teaches": experiment.teaches,
        "expect": expectation(experiment),
        "backends": list(experiment.backends),
    }


def _expectation(experiment: Experiment) -> str:
    expect = experiment.expect
    return "held" if expect.verdict == "held" else f"violated: {', '.join(sorted(expect.anomalies))}"


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(
            f"cannot make the folder {folder} for the report: {error.strerror}; name another with --out",
            EXIT_USAGE,
        )


def _print(done: Run, page: Path) -> None:
    """The verdict for people."""
    from kraft.chaos.experiments.report.summary import probe_rows, sentences

    verdict = done.verdict
    for sentence in sentences(done):
        print_table(Text(fill(sentence, COLUMNS, break_long_words=False)))
    print_line("")
    for one in verdict.reasons[:REASONS_SHOWN_MAX]:
        text = fill(f"{one.grade}: {one.text}", COLUMNS, subsequent_indent="  ", break_long_words=False)
        print_table(Text(text, style=COLOURS[one.grade]))
    if len(verdict.reasons) > REASONS_SHOWN_MAX:
        print_line(f"and {len(verdict.reasons) - REASONS_SHOWN_MAX} more findings, in the report")
    for name, when, value, tolerance, holds in probe_rows(verdict):
        mark = "could not be measured" if holds is None else "held" if holds else "not held"
        print_line(f"{name} {when}: {value} ({tolerance}): {mark}")
    expected = "as expected" if verdict.as_expected else "not as expected"
    print_table(
        Text.assemble(
            "verdict: ",
            (verdict.verdict, f"bold {COLOURS[verdict.verdict]}"),
            f" (safety {verdict.safety}, hypothesis {verdict.hypothesis}), {expected}",
        )
    )
    print_line(f"report: {page}")
