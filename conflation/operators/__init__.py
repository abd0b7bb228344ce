"""Operators decide which records of a topic are on a board: a filter, a window, groups."""
