"""The Spark session: its Java, its packages, and what executors need."""
