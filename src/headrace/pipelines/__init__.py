"""Declared jobs: topic, then SQL or DataFrame code on Spark, then sink."""
