"""Declared jobs: a topic, then SQL or DataFrame code on Spark, then a sink."""

from headrace.pipelines.files import pipeline

__all__ = ["pipeline"]
