"""The gateway: sockets, clock, stores, routes and the command line around the pure engine."""
