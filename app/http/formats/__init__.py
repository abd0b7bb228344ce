"""Formats of records in a bounded answer: NDJSON, a JSON array, CSV and Arrow."""
