"""The command `tidegate`: one module a verb; what is heavy is imported where it is needed."""
