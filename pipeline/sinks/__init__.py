"""Sinks: topics and files to which the rows of a stream are written, each once."""
