"""The tiers as commands: listed without loading them, loaded from their entry points when one is called."""

from collections.abc import Sequence

import typer

from rankscope.cli._app import app
from rankscope.up import importing, load_command

SERVICES = {
    "gateway": "Accept batches over gRPC and put them in Redis (a production tier).",
    "writer": "Write what Redis holds into ClickHouse (a production tier).",
    "query-service": "Answer queries over HTTP (a production tier).",
    "migrate": "Make or upgrade the tables in ClickHouse; safe to repeat.",
    "dlq": "List, show, replay and discard the batches that could not be stored.",
}
"""Command -> what it is for."""


PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": list[str]()}
"""A tier's command parses its own options, `--help` too."""


@app.command("gateway", help=SERVICES["gateway"], context_settings=PASSED_ON)
def gateway(context: typer.Context) -> object:
    """The gateway's own command."""
    return _run("gateway", context.args)


@app.command("writer", help=SERVICES["writer"], context_settings=PASSED_ON)
def writer(context: typer.Context) -> object:
    """The writer's own command."""
    return _run("writer", context.args)


@app.command("query-service", help=SERVICES["query-service"], context_settings=PASSED_ON)
def query_service(context: typer.Context) -> object:
    """The query service's own command."""
    return _run("query-service", context.args)


@app.command("migrate", help=SERVICES["migrate"], context_settings=PASSED_ON)
def migrate(context: typer.Context) -> object:
    """The command that makes the tables."""
    return _run("migrate", context.args)


@app.command("dlq", help=SERVICES["dlq"], context_settings=PASSED_ON)
def dlq(context: typer.Context) -> object:
    """The commands for batches that could not be stored."""
    with importing("rankscope dlq", extra="server"):
        return load_command("dlq")(list(context.args), prog_name="rankscope dlq", standalone_mode=False)


def _run(name: str, arguments: Sequence[str]) -> object:
    tier = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    tier.command(help=SERVICES[name])(load_command(name))
    with importing(f"rankscope {name}", extra="server"):
        return tier(list(arguments), prog_name=f"rankscope {name}", standalone_mode=False)
