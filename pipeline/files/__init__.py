"""Files as rows: what a task makes of the bytes of a block, without Spark."""
