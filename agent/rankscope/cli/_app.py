"""The one application that the commands register with, and what all of it shares."""

import typer

app = typer.Typer(
    rich_markup_mode=None,  # plain help: nothing to import, nothing drawn around it
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "RANKSCOPE", "help_option_names": ["-h", "--help"]},
)
"""Each option without an environment variable of its own takes RANKSCOPE_<COMMAND>_<OPTION>."""
