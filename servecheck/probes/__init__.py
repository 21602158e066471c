"""One module per probe, each exporting ``PROBE``; discovered, never listed."""
