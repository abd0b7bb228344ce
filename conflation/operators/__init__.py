"""Operators: what of a topic is on a board: a filter, a window, groups."""
