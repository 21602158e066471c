"""The digest of the probes: runs that were judged by unlike rules have unlike digests."""

from __future__ import annotations

from pathlib import Path

import pytest

import servecheck
from servecheck import asked
from servecheck.probes import discover

PACKAGE = Path(servecheck.__file__).parent
SHARED = [*(PACKAGE / "read").glob("*.py"), *(PACKAGE / "probes").glob("_*.py"), PACKAGE / "rollup.py"]


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_what_judges_share_is_part_of_the_digest(path: Path) -> None:
    assert path.read_text(encoding="utf-8") in asked._shared()


def test_another_way_to_read_replies_is_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = discover()
    before = asked.probes_digest(probes)
    monkeypatch.setattr(asked, "_shared", lambda: "another way to read a reply")

    assert asked.probes_digest(probes) != before
