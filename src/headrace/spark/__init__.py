"""Topics as DataFrames: options, plan, offsets, schema, source and writer for PySpark."""
