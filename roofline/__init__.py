"""Ceilings, the join of estimate and measurement, placing, pictures and tables."""
