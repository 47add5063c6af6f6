"""`kraft cluster`: starts a local cluster of node processes, shows it, and strikes its nodes by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from kraft.cli.health.command import health
from kraft.cli.shared.bootstrap import BOOTSTRAP_VARIABLE
from kraft.cli.shared.command_config import OPTION
from kraft.cli.shared.options import Json, reflowed
from kraft.cli.shared.output import console, fail, print_json, print_line, print_rows, progress
from kraft.cli.shared.tables import Rows
from kraft.cluster_problems import ids_text
from kraft.config import is_sensitive
from kraft.local_cluster.identities import CLIENT_FILE, CLIENT_FILES
from kraft.local_cluster.spec import DEFAULT_DIR, FAST_TIMERS, ClusterSpec, replication_settings
from kraft.user_error import EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.local_cluster.cluster import LocalCluster

app = typer.Typer(help="A cluster on this machine: one process per node, each broker and controller.")

Dir = Annotated[Path, typer.Option("--dir", help="The folder that holds the cluster.")]
NodeId = Annotated[int, typer.Argument(help="The node's id, from 1.", show_default=False)]

DEFAULT_NODES = 3
DEFAULT_PORT = 9092

COLOURS = {
    "running": "green",
    "starting": "cyan",
    "fenced": "yellow",
    "paused": "yellow",
    "stopped": "dim",
    "dead": "red",
}
"""Of the states of a node."""

OF_ONE_NODE = frozenset({"node.id", "log.dir", "log.dirs", "metadata.log.dir", "listeners", "http.listener"})
"""What cannot be the same for all nodes of a cluster."""


def parse_settings(settings: list[str]) -> dict[str, str]:
    """`key=value` strings as a dict, for all nodes. Raises UserError for anything else."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise UserError(f"--set takes key=value, not {setting!r}", exit_code=EXIT_USAGE)
        if key.strip() in OF_ONE_NODE:
            raise UserError(
                f"{key.strip()} differs from node to node: --set takes what holds for all of them",
                exit_code=EXIT_USAGE,
            )
        parsed[key.strip()] = value.strip()
    return parsed


@app.command()
@reflowed
def start(
    directory: Dir = DEFAULT_DIR,
    nodes: Annotated[
        int | None, typer.Option(help="How many nodes.", show_default=str(DEFAULT_NODES))
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Client port of node 1; node i has PORT + i - 1.", show_default=str(DEFAULT_PORT)),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            help="Port of node 1's console; node i has HTTP_PORT + i - 1.",
            show_default="right behind the client ports, where they are free",
        ),
    ] = None,
    setting: Annotated[list[str], typer.Option("--set", help="A server property, key=value.")] = [],  # noqa: B006
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="With TLS, users by SCRAM, ACLs; writes what clients need into the folder."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Start a cluster, or the stopped one in the folder; returns when every broker is unfenced.

    New topics have three replicas, two of them in sync for acks=all, where there are nodes for it and --set says
    nothing else. A cluster that is there stays as it is: number, port, settings and --secure count when one is created.

    --secure makes an authority, certificates and an admin with a random password, and turns ACLs on: who is not admin
    may nothing yet (`kraft users add`, `kraft acls add`). client.properties in the folder has librdkafka's keys,
    java.properties Java's, spark.properties Spark's options. Commands in the folder above use the first by themselves.
    """
    cluster = _cluster_in(directory)
    fresh = not cluster.exists
    if fresh:
        count = DEFAULT_NODES if nodes is None else nodes
        settings = replication_settings(count) | parse_settings(setting)
        spec = cluster.create(
            count, DEFAULT_PORT if port is None else port, settings, http_port, secure=secure
        )
        for warning in cluster.warnings():
            console.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
    else:
        spec = cluster.spec()
        _refuse_other_shape(cluster, spec, nodes, port, http_port, parse_settings(setting), secure=secure)
    ran = cluster.running()
    try:
        with progress("starting", total=len(spec.nodes)) as advance:
            cluster.start_all(on_ready=lambda _: advance(1))
    except BaseException:
        cluster.destroy() if fresh else cluster.stop_all(but=ran)
        raise
    if as_json:
        print_json(
            {
                **cluster.status(),
                "bootstrap_servers": spec.bootstrap_servers(),
                "console": spec.console(1),
                "dir": str(cluster.directory),
                "started": [node.id for node in spec.nodes if node.id not in ran],
                "secure": spec.identities is not None,
            }
        )
        return
    if not fresh:
        _note(_what_was_started(spec, ran))
    _note_what_there_is(cluster, spec)
    print_line(spec.bootstrap_servers())


def _note_what_there_is(cluster: LocalCluster, spec: ClusterSpec) -> None:
    """How it is set, where to look, and how other commands and clients reach it."""
    _note_settings("new topics", spec, replication_settings(len(spec.nodes)))
    _note_settings("development timers", spec, FAST_TIMERS)
    _note(f"console: {spec.console(1)}")
    is_elsewhere = cluster.directory != DEFAULT_DIR.absolute()
    if spec.identities is not None:
        for name, readers in CLIENT_FILES.items():
            _note(f"{cluster.directory / name}: for {readers}")
        if is_elsewhere:
            _note(f"for other commands: {OPTION} {cluster.directory / CLIENT_FILE}")
    elif is_elsewhere:
        _note(f"for other commands: export {BOOTSTRAP_VARIABLE}={spec.bootstrap_servers()}")


def _refuse_other_shape(
    cluster: LocalCluster,
    spec: ClusterSpec,
    nodes: int | None,
    port: int | None,
    http_port: int | None,
    settings: dict[str, str],
    *,
    secure: bool,
) -> None:
    """The cluster in the folder is as it was created; other wishes are refused by name, not ignored."""
    has_nodes, has_port, has_http = len(spec.nodes), spec.nodes[0].client_port, spec.nodes[0].http_port
    undone = [f"--nodes {nodes} (it has {has_nodes})"] if nodes not in (None, has_nodes) else []
    undone += [f"--port {port} (it has {has_port})"] if port not in (None, has_port) else []
    undone += ["--secure (it is not)"] if secure and spec.identities is None else []
    undone += [f"--http-port {http_port} (it has {has_http})"] if http_port not in (None, has_http) else []
    for key, value in settings.items():
        if (has := spec.settings.get(key)) == value:
            continue
        if is_sensitive(key):
            undone.append(f"--set {key} (hidden)")
        else:
            undone.append(f"--set {key}={value} ({'not set in it' if has is None else f'it has {has}'})")
    if undone:
        raise UserError(
            f"nothing was done: there is a cluster in {cluster.directory} already, and these count only when one is"
            f" created: {', '.join(undone)}. Leave them out, use another --dir, or destroy it first; keys can be"
            " changed in each node-*/server.properties",
            EXIT_USAGE,
        )


def _what_was_started(spec: ClusterSpec, ran: list[int]) -> str:
    """For a cluster that was there before; `ran` are the nodes that had a process."""
    started = [node.id for node in spec.nodes if node.id not in ran]
    if not started:
        return "nothing to start: all nodes run already"
    running = f"; running already: {ids_text(ran)}" if ran else ""
    return f"this cluster existed, with its topics; nodes started: {ids_text(started)}{running}"


def _note_settings(label: str, spec: ClusterSpec, keys: Iterable[str]) -> None:
    settings = [f"{key}={spec.settings[key]}" for key in keys if key in spec.settings]
    if settings:  # an older cluster may have been created without
        _note(f"{label}: {', '.join(settings)}")


def _note(text: str) -> None:
    console.print(f"[dim]{escape(text)}[/dim]", soft_wrap=not console.is_terminal)


@app.command()
@reflowed
def status(directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """Show each node, its process, state and addresses; and the partitions that lack replicas or a leader.

    A node that is stopped ended in order, with its logs closed; one that is dead did not.
    """
    document = _cluster_in(directory).status()
    if as_json:
        print_json(document)
        return
    print_line(f"cluster {document['cluster_id']}, controller {document['controller_id'] or '-'}")
    print_rows(_status_table(document))
    known = "" if document["controller_id"] else " (as last known: there is no active controller)"
    print_line(_partitions_text(document["partitions"], known))


def _status_table(document: dict[str, Any]) -> Rows:
    table = Rows(("node", "pid", "state", "listener", "http"))
    for node in document["nodes"]:
        state = Text(node["state"], style=COLOURS[node["state"]])
        table.add(str(node["id"]), str(node["pid"] or ""), state, node["listener"], node["http"])
    return table


def _partitions_text(partitions: dict[str, int | None], known: str) -> str:
    if partitions["total"] is None:
        return "partitions: no node answers"
    text = "partitions: {total}, under-replicated: {under_replicated}, without a leader: {leaderless}"
    return text.format_map(partitions) + known


app.command()(reflowed(health))


@app.command()
def kill(node_id: NodeId, directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """SIGKILL one node."""
    cluster = _cluster_in(directory)
    pid = cluster.pid(cluster.node(node_id).id)
    _require(cluster.kill(node_id), node_id)
    _print_node(cluster, node_id, pid, as_json)


@app.command()
def pause(node_id: NodeId, directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """SIGSTOP one node."""
    cluster = _cluster_in(directory)
    _require(cluster.pause(node_id), node_id)
    _print_node(cluster, node_id, cluster.pid(node_id), as_json)


@app.command()
def resume(node_id: NodeId, directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """SIGCONT one node."""
    cluster = _cluster_in(directory)
    _require(cluster.resume(node_id), node_id)
    _print_node(cluster, node_id, cluster.pid(node_id), as_json)


@app.command("stop-node")
def stop_node(node_id: NodeId, directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """Controlled shutdown of one node: its leaderships move first."""
    cluster = _cluster_in(directory)
    pid = cluster.pid(cluster.node(node_id).id)
    _require(cluster.stop_node(node_id), node_id)
    _print_node(cluster, node_id, pid, as_json)


@app.command("start-node")
def start_node(node_id: NodeId, directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """Start one node again; returns when it is unfenced."""
    cluster = _cluster_in(directory)
    cluster.start_node(node_id)
    _print_node(cluster, node_id, cluster.pid(node_id), as_json)


@app.command()
def stop(directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """Controlled shutdown of all nodes; the data stays."""
    cluster = _cluster_in(directory)
    stopped = cluster.stop_all()
    if as_json:
        print_json({"dir": str(cluster.directory), "stopped": stopped})


@app.command()
def destroy(directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """End the nodes and remove their data; doing it twice is fine."""
    cluster = _cluster_in(directory)
    destroyed = cluster.destroy()
    if as_json:
        print_json({"dir": str(cluster.directory), "destroyed": destroyed})


def _cluster_in(directory: Path) -> LocalCluster:
    from kraft.local_cluster.cluster import LocalCluster

    return LocalCluster(directory)


def _require(was_running: bool, node_id: int) -> None:
    if not was_running:
        fail(f"node {node_id} is not running")


def _print_node(cluster: LocalCluster, node_id: int, pid: int | None, as_json: bool) -> None:
    """For --json: which process the command was about."""
    if as_json:
        print_json({"dir": str(cluster.directory), "id": node_id, "pid": pid})
