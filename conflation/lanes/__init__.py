"""Lanes: what equal subscriptions share; each flush is encoded once for all members."""
