"""Topics: numbering, journal, records, and feeds: a board with its operator and its lanes."""
