"""Declared jobs: topic, then SQL or DataFrame code on Spark, then sink."""

from headrace.pipelines.files import pipeline

__all__ = ["pipeline"]
