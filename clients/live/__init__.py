"""Live dicts: the records of a subscription, kept up to date behind the caller's back."""
