"""The files that ``servecheck init`` writes, as they are written; what is Python here is in ``servecheck.init``."""
