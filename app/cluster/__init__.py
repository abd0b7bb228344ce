"""Several gateways that share one Redis: the only package that connects to Redis."""
