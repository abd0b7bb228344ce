"""Sessions and their subscribers: backfill, rows to send, changes of lane, queues, accounting."""
