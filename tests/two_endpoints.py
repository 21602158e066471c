"""Two endpoints as arguments name them, a secret that nothing may show, and what is said where they are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from servecheck.endpoints import resolve
from servecheck.errors import UsageError

__all__ = ["GPU", "SECRET", "TPU", "refused"]

GPU, TPU = "gpu=https://gpu.example/v1", "tpu=https://tpu.example/v1"
SECRET = "hunter2-is-the-key"


def refused(arguments: Sequence[str], **options: Any) -> str:
    """Return the words with which arguments are refused, in an environment that is empty unless it is given."""
    options = {"environ": {}} | options
    with pytest.raises(UsageError) as caught:
        resolve(arguments, **options)
    return str(caught.value)
