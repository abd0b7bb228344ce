"""The gateway's metrics in Prometheus's text format; a scrape changes nothing."""
