"""Every YAML block that the documents show is one that servecheck itself takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from servecheck import features, yamlfile
from servecheck.lint import lint
from servecheck.probes import discover

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
BLOCK = re.compile(r"^```ya?ml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text("utf-8")))
]
TOOL = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {}}}}
BESIDE = {
    "schemas/invoice.json": {"type": "object", "properties": {"number": {"type": "string"}}},
    "tools.json": [TOOL],
    "requests.jsonl": {"messages": [{"role": "user", "content": "Hello!"}], "tools": [TOOL]},
}
"""What a reader of the blocks has beside them."""


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_can_be_read_and_has_no_problem(block, tmp_path):
    for name, content in BESIDE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content), "utf-8")
    named = re.search(r"^id: (\S+)$", block, re.MULTILINE)
    path = tmp_path / f"{named[1] if named else 'block'}.yaml"
    path.write_text(block, "utf-8")
    if re.search(r"^schema: servecheck/", block, re.MULTILINE):
        assert lint([path], probes=discover(), features=features.BY_ID) == []
    else:
        assert yamlfile.read(path).problems == ()


def test_there_are_blocks_of_several_formats():
    formats = {found for block in BLOCKS for found in re.findall(r"schema: (servecheck/\w+/v1)", str(block.values[0]))}
    assert {"servecheck/scenario/v1", "servecheck/workload/v1", "servecheck/endpoints/v1"} <= formats
