"""The options language: what a subscriber writes, made definite, and printed back."""
