"""Stores of topics and messages: one protocol and its implementations."""
