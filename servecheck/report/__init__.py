"""Finished data to something a person or a machine reads; never decides."""
