"""The board: the newest frame of each key."""
