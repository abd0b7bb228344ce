"""Sessions: who subscribes to what, with a reader or without one for a while."""
