"""The demo: the gateway, live feeds and the Spark pipeline in one command."""
