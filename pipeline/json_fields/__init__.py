"""Top-level fields of JSON messages as columns: found, reduced, and written back."""
