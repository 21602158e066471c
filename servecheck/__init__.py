"""servecheck: can I serve this model from that endpoint instead of this one, and rely on each feature?"""

__version__ = "0.1.0"
