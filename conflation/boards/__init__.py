"""What stands where: the newest frame of each key, and the screens that decide which."""
