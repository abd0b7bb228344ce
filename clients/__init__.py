"""The Python client of a Tidegate gateway; needs nothing of the server's.

`clients.gateway.Gateway` is the door: topics, publishing, the state of the world, and
subscriptions that find their way back after a lost connection.
"""
