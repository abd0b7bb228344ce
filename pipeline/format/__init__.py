"""Spark's format "tidegate": topics as data frames."""
