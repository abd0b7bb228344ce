"""A topic: its numbering, its feeds (a board with its lanes), its records and its past."""
