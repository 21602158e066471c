"""One module per probe, each exporting ``MUTANTS`` and ``HARMLESS``; discovered, never listed."""
