"""Faults on real processes, and a ledger outside the system that says what must have survived.

`python3 dev.py bench faults` kills the gateway, and Redis behind it, at random instants under load;
`--catalogue` plays the other faults one by one. Every run is held against the ledger.
"""
