"""`kraft cluster`: starts a local cluster of node processes, shows it, and strikes its nodes by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, fail, print_json, print_line, print_table, progress
from kraft.local_cluster.spec import FAST_TIMERS, ClusterSpec
from kraft.user_error import EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.local_cluster.cluster import LocalCluster

app = typer.Typer(help="A cluster on this machine: one process per node, each broker and controller.")

Dir = Annotated[Path, typer.Option("--dir", help="The folder that holds the cluster.")]
NodeId = Annotated[int, typer.Argument(help="The node's id, from 1.", show_default=False)]

DEFAULT_DIR = Path(".kraft")
DEFAULT_NODES = 3
DEFAULT_PORT = 9092


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
def start(
    directory: Dir = DEFAULT_DIR,
    nodes: Annotated[
        int | None, typer.Option(help="How many nodes.", show_default=str(DEFAULT_NODES))
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Client port of node 1; node i has PORT + i - 1.", show_default=str(DEFAULT_PORT)),
    ] = None,
    setting: Annotated[list[str], typer.Option("--set", help="A server property, key=value.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Start a cluster, or the stopped one in the folder; returns when every broker is unfenced."""
    cluster = _cluster_in(directory)
    fresh = not cluster.exists
    if fresh:
        spec = cluster.create(
            DEFAULT_NODES if nodes is None else nodes,
            DEFAULT_PORT if port is None else port,
            parse_settings(setting),
        )
    else:
        spec = cluster.spec()
        _refuse_other_shape(spec, nodes, port, setting)
    try:
        with progress("starting", total=len(spec.nodes)) as advance:
            cluster.start_all(on_ready=lambda _: advance(1))
    except BaseException:
        cluster.destroy() if fresh else cluster.stop_all()
        raise
    if as_json:
        print_json(
            {**cluster.status(), "bootstrap_servers": spec.bootstrap_servers(), "dir": str(cluster.directory)}
        )
        return
    timers = ", ".join(f"{key}={spec.settings[key]}" for key in FAST_TIMERS if key in spec.settings)
    console.print(f"[dim]development timers: {timers}[/dim]", soft_wrap=True)
    print_line(spec.bootstrap_servers())


def _refuse_other_shape(spec: ClusterSpec, nodes: int | None, port: int | None, setting: list[str]) -> None:
    """The cluster in the folder is as it was created; other wishes are refused, not ignored."""
    is_other = nodes not in (None, len(spec.nodes)) or port not in (None, spec.nodes[0].client_port)
    if is_other or setting:
        raise UserError(
            f"the folder holds a cluster of {len(spec.nodes)} nodes at port {spec.nodes[0].client_port} already;"
            " --nodes, --port and --set count only when one is created: destroy it first, or use another --dir",
            EXIT_USAGE,
        )


@app.command()
def status(directory: Dir = DEFAULT_DIR, as_json: Json = False) -> None:
    """Show each node: its process, state and addresses."""
    document = _cluster_in(directory).status()
    if as_json:
        print_json(document)
        return
    print_table(_status_table(document))


def _status_table(document: dict[str, Any]) -> Any:
    from rich.table import Table

    colours = {"running": "green", "dead": "red", "paused": "yellow", "fenced": "yellow", "starting": "cyan"}
    table = Table(title=f"cluster {document['cluster_id']}")
    for column in ("node", "pid", "state", "listener", "http"):
        table.add_column(column)
    for node in document["nodes"]:
        mark = " (controller)" if node["id"] == document["controller_id"] else ""
        state = node["state"]
        table.add_row(
            f"{node['id']}{mark}",
            str(node["pid"] or "-"),
            f"[{colours[state]}]{state}[/{colours[state]}]",
            node["listener"],
            node["http"],
        )
    return table


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
