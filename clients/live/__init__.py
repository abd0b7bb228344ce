"""Live dicts: the records of a subscription, kept up to date in the background."""
