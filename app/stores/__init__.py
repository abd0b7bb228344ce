"""Where topics and messages are kept: one protocol, and who keeps it."""
