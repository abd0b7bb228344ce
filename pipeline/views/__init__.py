"""Views: aggregates and joins over the records of a source, as AMPS has them."""
