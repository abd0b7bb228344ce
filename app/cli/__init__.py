"""The command `tidegate`: a module for each group of verbs; slow imports happen where needed."""
