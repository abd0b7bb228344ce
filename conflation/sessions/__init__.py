"""One consumer: what it begins with, where it stands, how it changes, what its queue may hold."""
