"""Access: tokens and the subjects behind them, their grants, and what each route needs."""
