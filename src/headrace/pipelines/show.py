"""A declared job and its progress, as tables of JSON values."""

from typing import Any

from headrace.pipelines.checkpoint import DEAD_LETTERS, QUERY, read_progress, read_state
from headrace.pipelines.declared import Pipeline, Sink, Source
from headrace.pipelines.source_options import hide_secrets


def summary(pipeline: Pipeline) -> dict[str, Any]:
    """Return one line about a job."""
    state = read_state(pipeline.checkpoint / QUERY)
    return {
        "name": pipeline.name,
        "topics": [topic for source in pipeline.sources for topic in source.topics],
        "sink": describe_sink(pipeline.sink),
        "trigger": describe_trigger(pipeline),
        "committed_batch": None if state is None else state.committed,
    }


def details(pipeline: Pipeline) -> dict[str, Any]:
    """Return the declaration of a job, the state of its checkpoint and its last progress."""
    return {
        "name": pipeline.name,
        "connection": hide_secrets(pipeline.connection),
        "group": pipeline.group,
        "sources": [_source(source) for source in pipeline.sources],
        "sql": pipeline.sql,
        "function": pipeline.function_name,
        "sink": _sink(pipeline.sink),
        "dead_letters": None if pipeline.dead_letters is None else _sink(pipeline.dead_letters),
        "trigger": describe_trigger(pipeline),
        "checkpoint": str(pipeline.checkpoint),
        "state": {part: _state(pipeline, part) for part in (QUERY, DEAD_LETTERS)},
        "progress": read_progress(pipeline.checkpoint),
    }


def describe_sink(sink: Sink) -> str:
    """Return a short description of a sink."""
    return " ".join(filter(None, [sink.kind, sink.table, str(sink.path or "")]))


def describe_trigger(pipeline: Pipeline) -> str:
    """Return when batches begin."""
    if pipeline.interval_millis is None:
        return "availableNow"
    return f"{pipeline.interval_millis / 1000:g} s"


def _source(source: Source) -> dict[str, Any]:
    shown: dict[str, Any] = {"view": source.view, "topics": list(source.topics)}
    shown |= {"schema": source.schema, "cast": dict(source.cast), "require": dict(source.require)}
    if source.watermark is not None:
        shown["watermark"] = {"column": source.watermark.column, "delay": source.watermark.delay}
    return shown | {"options": hide_secrets(source.options)}


def _sink(sink: Sink) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": sink.kind.value, "mode": sink.mode.value}
    if sink.path is not None:
        shown["path"] = str(sink.path)
    more: dict[str, Any] = {
        "table": sink.table,
        "catalog": hide_secrets(sink.catalog),
        "partition_by": list(sink.partition_by),
        "options": hide_secrets(sink.options),
    }
    return shown | {key: value for key, value in more.items() if value}


def _state(pipeline: Pipeline, part: str) -> dict[str, Any] | None:
    state = read_state(pipeline.checkpoint / part)
    if state is None:
        return None
    return {
        "query": state.query,
        "planned_batch": state.planned,
        "committed_batch": state.committed,
        "offsets": state.offsets,
    }
