"""What a command draws on a terminal while it runs, and the keys that change it."""
