"""Access: tokens and the subjects behind them, grants, the policy, revocations, limits."""
