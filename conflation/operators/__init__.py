"""Operators: what of a topic stands on a board - a filter, a window, groups."""
