"""Measurements of the pipeline, compared with Spark's own means, polars, and the engine."""
