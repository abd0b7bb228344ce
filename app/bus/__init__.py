"""The bus: what several gateways share, and the only package that speaks to Redis."""
