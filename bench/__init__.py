"""Measurements: `python3 dev.py bench` runs all suites, or the named ones.

Timings are measured here and never in tests. Figures differ between machines; ratios measured side
by side in one run do not.
"""
