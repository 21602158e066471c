"""Frozen outside shapes: what scenarios and results look like to other programs."""
