"""Members of messages as columns: decoded, kept as texts, and reduced."""
