"""The gateway's metrics in Prometheus's text format, and the rates of the last hour."""
