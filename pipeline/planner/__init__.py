"""The cost of intervals: one pass over a history for many choices."""
