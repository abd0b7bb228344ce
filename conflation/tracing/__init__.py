"""Tracing: why each message of one subscription was sent, conflated or dropped."""
