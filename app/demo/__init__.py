"""The demo: the gateway, live feeds and the Spark pipeline at once, in one command."""
