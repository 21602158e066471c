"""A server that is right by construction, and its broken variants: the instrument that checks the instrument."""
