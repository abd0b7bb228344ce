"""Measurements of the pipeline: beside Spark's own means, beside polars, and beside the engine."""
