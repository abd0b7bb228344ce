"""Several gateways that share one Redis, and worker processes at one address.

No other package of the gateway connects to Redis.
"""
