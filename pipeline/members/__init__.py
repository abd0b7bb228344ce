"""Members of messages as columns: taken out of their texts, reduced, and written back."""
