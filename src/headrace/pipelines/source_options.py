"""The options of `format("headrace")` for a declared source."""

import re
from collections.abc import Mapping
from typing import Final

from headrace.client.session.settings import TOKEN_VARIABLE
from headrace.pipelines.declared import Pipeline, Source
from headrace.spark.option_reader import OptionsError
from headrace.spark.options import read_options
from headrace.spark.schema import MESSAGE_COLUMNS

# A dead letter has its place and its payload, whatever the names of the value's fields.
PLACE_COLUMNS: Final = ("stream", "topic", "partition", "offset", "payload")
NODE_WAIT: Final = "30 s"
SECRETS: Final = ("password", "token")
CONNECTION_OPTIONS: Final = ("address", "username", "password", "token")
OWN_OPTIONS: Final = {
    "topic": "topic",
    "subscribe": "topic",
    "valueFormat": "schema",
    "valueSchema": "schema",
    "groupId": "group",
} | {name: name for name in CONNECTION_OPTIONS}


def source_options(
    pipeline: Pipeline, source: Source, *, is_reporting: bool = True
) -> dict[str, str]:
    """Return the options for reading a source; a job begins with the oldest message.

    A job is a service: it, and its restarted queries, may start at the same time as the node.
    """
    options = {"subscribe": ",".join(source.topics), "wait": NODE_WAIT}
    if not any(name.lower().startswith("starting") for name in source.options):
        options["startingOffsets"] = "earliest"
    if is_reporting:
        options["groupId"] = pipeline.group
    if source.schema:
        fields = field_names(source.schema)
        columns = [name for name in MESSAGE_COLUMNS if name not in fields]
        options |= {
            "valueFormat": "json",
            "valueSchema": source.schema,
            "columns": ",".join(columns),
        }
    return options | dict(pipeline.connection) | dict(source.options)


def source_problems(pipeline: Pipeline, source: Source) -> list[str]:
    """Return all problems of a source's options that do not depend on where it runs."""
    own = {name.lower(): key for name, key in OWN_OPTIONS.items()}
    problems = [
        f"options.{name}: the key {own[name.lower()]} of the job or of the source says this"
        for name in source.options
        if name.lower() in own
    ]
    taken = [name for name in field_names(source.schema) if name in PLACE_COLUMNS]
    if taken:
        problems.append(
            f"schema: {', '.join(taken)} are columns that a dead letter needs of the message;"
            " leave the schema out and read the payload with from_json in sql"
        )
    if not source.topics:
        return problems
    try:
        read_options(source_options(pipeline, source), {TOKEN_VARIABLE: "any"}, streaming=True)
    except OptionsError as error:
        _, *lines = str(error).splitlines()
        problems += [f"options.{line.strip()}" for line in lines]
        problems = [each.replace("options.subscribe:", "topic:") for each in problems]
    return problems


def hide_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with secrets masked."""
    return {name: "..." if name.lower() in SECRETS else value for name, value in options.items()}


def field_names(schema: str) -> list[str]:
    """Return the names of the outermost fields of a schema in DDL."""
    depth, flat = 0, ""
    for letter in schema:
        depth += (letter in "<(") - (letter in ">)")
        flat += "," if letter == "," and depth == 0 else " " if letter == "," else letter
    starts = [re.match(r"\s*(?:`([^`]+)`|([^\s:`]+))", part) for part in flat.split(",")]
    return [found[1] or found[2] for found in starts if found]
