"""Archived topics, for reads that go back beyond the journal.

`tidegate pipeline journal` writes the archive. Only `tidegate.app.archive.parquet` and `state`
import pyarrow; they are loaded on first use.
"""
