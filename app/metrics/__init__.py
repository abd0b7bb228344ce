"""Metrics: what the gateway has counted, in Prometheus's text form. Looking changes nothing."""
