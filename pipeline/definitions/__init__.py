"""Definitions of streams: the TOML file, and topics that say `engine: spark`."""
