"""`archgen schema`: the JSON Schema of architecture files, for editors."""

from __future__ import annotations

import json

import click

from archgen.schema.json_schema import file_schema


@click.command()
def schema() -> None:
    """Print the JSON Schema of architecture files.

    Save it, and put `# yaml-language-server: $schema=PATH` at the top of a file: editors then
    complete keys, explain fields and mark mistakes.
    """
    click.echo(json.dumps(file_schema(), indent=2))
