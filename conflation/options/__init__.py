"""The options language: one table, from which texts are parsed, checked, granted and printed."""
