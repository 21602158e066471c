"""The way to a model in this process, as a run takes it: an endpoint's name and a transport that stays in memory."""

from __future__ import annotations

from collections.abc import Callable

from servecheck.inprocess.app import App, Model
from servecheck.model import Endpoint
from servecheck.wire.memory import MemoryTransport
from servecheck.wire.transport import Transport

__all__ = ["URL", "connector", "endpoint"]

URL = "http://127.0.0.1:1/v1"
"""Stands where an address stands; nothing listens there, for requests never leave the process."""


def endpoint(model: Model, name: str = "transformers") -> Endpoint:
    """Return the endpoint that stands for the model; it is the reference."""
    return Endpoint(name=name, base_url=URL, model=model.name, reference=True, api_key_env="", kind="chat")


def connector(model: Model) -> Callable[[Endpoint], Transport]:
    """Return how the endpoint is reached."""
    app = App(model)
    return lambda asked: Transport(asked, app=MemoryTransport(app))
