"""Messages as columns: read, filtered and conflated a block at a time, by the engine's rules."""
