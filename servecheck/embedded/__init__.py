"""A real small engine on this machine, for ``demo`` and for the tests marked ``engine``."""
