"""`archgen schema`: the JSON Schema of architecture and study files, for editors."""

from __future__ import annotations

import json

import click

from archgen.schema.json_schema import file_schema
from archgen.studies.file import study_schema


@click.command()
@click.option("--study", is_flag=True, help="Of study files rather than architecture files.")
def schema(study: bool) -> None:
    """Print the JSON Schema of architecture files, or of study files.

    Save it, and put `# yaml-language-server: $schema=PATH` at the top of a file: editors then
    complete keys, explain fields and mark mistakes.

    \b
    archgen schema > archgen.schema.json
    archgen schema --study > study.schema.json
    """
    click.echo(json.dumps(study_schema() if study else file_schema(), indent=2))
