"""The processes of a measurement: gateways, peers, and the load client on the other core."""
