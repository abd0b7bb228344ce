"""What equal subscriptions share: when what is held goes out, encoded once for all members."""
