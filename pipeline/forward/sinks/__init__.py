"""The kinds of sinks of `tidegate forward`."""
