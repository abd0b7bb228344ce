"""What an operator may set, and the kinds of values."""
