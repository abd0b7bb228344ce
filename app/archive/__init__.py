"""Topics that `tidegate pipeline journal` has archived, read where the journal reaches no more.

The one place of the gateway that knows Parquet (`app.archive.parquet`), loaded when it is needed.
"""
