"""The asyncio client: the same requests, streams and records, read in tasks."""
