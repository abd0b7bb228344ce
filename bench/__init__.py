"""Measurements: `python3 dev.py bench` runs them all, or those that are named.

Timings live here and never in tests. Figures move between machines; ratios taken side by side
in one run hold.
"""
