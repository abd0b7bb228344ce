"""Topics kept as Parquet: written from the journal, read again, published again."""
