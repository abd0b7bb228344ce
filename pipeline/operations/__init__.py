"""Supervision of running streams: restarts, status, metrics, signals."""
