"""What an interval would cost: one pass over a history for many choices."""
