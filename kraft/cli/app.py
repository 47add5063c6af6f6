"""All commands of `kraft`, and how their errors end."""

from __future__ import annotations

from typing import Annotated

import click
import typer

from kraft.cli import cluster, storage, topics
from kraft.cli.consume import consume
from kraft.cli.demo.run import demo
from kraft.cli.errors import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, UserError
from kraft.cli.output import console
from kraft.cli.produce import produce

app = typer.Typer(
    name="kraft",
    help="A self-managed, replicated log that speaks Kafka's protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(storage.app, name="storage")
app.command()(produce)
app.command()(consume)
app.command()(demo)


@app.command()
def server(
    file: Annotated[str, typer.Argument(help="The node's server.properties.", show_default=False)],
) -> None:
    """Run one node in the foreground; SIGTERM is a controlled shutdown."""
    from kraft.cli.server import run_server

    raise typer.Exit(run_server(file))


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    click.echo(installed("kraft"))


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
    try:
        result = app(arguments, standalone_mode=False)
    except UserError as error:
        console.print(f"[red]error:[/red] {error}", soft_wrap=True)
        return error.exit_code
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.Abort:
        return EXIT_FAILED
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    return result if isinstance(result, int) else EXIT_DONE
