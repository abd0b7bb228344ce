"""The kinds of sources, a module each."""
