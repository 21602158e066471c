"""A model of Transformers in this process, behind the API that endpoints have; for recording a reference, not to serve.

:mod:`~servecheck.inprocess.app` speaks the API and knows no framework; :mod:`~servecheck.inprocess.eager` is the model.
"""
