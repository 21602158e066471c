"""Reading a request body field by field: the right type and range, or a 400 that names the field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from servecheck.reference.asgi import Event

__all__ = ["ApiError", "boolean", "in_vocabulary", "integer", "integers", "mapping", "number", "text", "texts"]


class ApiError(Exception):
    """A request that is refused: status, sentence, and the field that is wrong."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param, self.code = message, status, kind, param, code


def _wrong(name: str, wanted: str, value: object) -> ApiError:
    return ApiError(f"{name} must be {wanted}, got {type(value).__name__}", param=name, code="invalid_type")


def _range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        bounds = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ApiError(f"{name} must be {bounds}, got {value:g}", param=name, code="out_of_range")


def number(body: Event, name: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a number; absent and null give the default."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, "a number", value)
    _range(name, value, low, high)
    return float(value)


def integer(body: Event, name: str, default: int, low: float = -math.inf, high: float = math.inf) -> int:
    """Return an integer; absent and null give the default."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "an integer", value)
    _range(name, value, low, high)
    return value


def boolean(body: Event, name: str, default: bool = False) -> bool:
    """Return a boolean; absent and null give the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(name, "a boolean", value)
    return value


def text(body: Event, name: str, default: str = "") -> str:
    """Return a string; absent and null give the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise _wrong(name, "a string", value)
    return value


def texts(body: Event, name: str) -> tuple[str, ...]:
    """Return a list of strings, none of them empty; a single string is a list of one."""
    value = body.get(name)
    if value is None:
        return ()
    given: Any = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(entry, str) for entry in given):
        raise _wrong(name, "a string or a list of strings", value)
    if "" in given:
        raise ApiError(f"{name} must not hold an empty string", param=name)
    return tuple(given)


def integers(body: Event, name: str, *, below: int) -> tuple[int, ...]:
    """Return a list of token ids, each below ``below``."""
    value = body.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or any(isinstance(entry, bool) or not isinstance(entry, int) for entry in value):
        raise _wrong(name, "a list of integers", value)
    in_vocabulary(name, value, below)
    return tuple(value)


def in_vocabulary(name: str, ids: Sequence[int], below: int) -> None:
    """Refuse token ids that do not exist."""
    for token in ids:
        if not 0 <= token < below:
            raise ApiError(f"{name} holds token id {token}, but the vocabulary ends at {below - 1}", param=name)


def mapping(body: Event, name: str) -> Event:
    """Return an object; absent and null give an empty one."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name, "an object", value)
    return value
