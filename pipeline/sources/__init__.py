"""Where a stream's messages come from."""
