"""A sample of traffic: JSON Lines and CSV under the usual names, and errors that point at the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from servecheck import features, plan, scenario
from servecheck.errors import ScenarioError, UsageError
from servecheck.probes import discover
from servecheck.traffic import Traffic, load


def written(folder: Path, text: str) -> Path:
    path = folder / "traffic"
    path.write_text(text, encoding="utf-8")
    return path


SAMPLE = Traffic(prompts=((12, 2), (300, 1)), outputs=((5, 1), (7, 2)))


@pytest.mark.parametrize(
    "text",
    [
        (
            '{"prompt_tokens": 12, "completion_tokens": 7}\n\n{"prompt_tokens": 300, "completion_tokens": 5}\n'
            '{"prompt_tokens": 12, "completion_tokens": 7, "model": "m"}'
        ),
        (
            '{"id": "x", "usage": {"prompt_tokens": 12, "completion_tokens": 7}}\n'
            '{"usage": {"prompt_tokens": 300, "completion_tokens": 5, "prompt_tokens_details": null}}\n'
            '{"usage": {"input_tokens": 12, "output_tokens": 7}}\n'
        ),
        "prompt_tokens,completion_tokens\n12,7\n300,5\n12,7\n",
        '\ufeffwhen, input_len ,output_len\r\n"2026-11-30, noon",12,7\r\n,300, 5\r\n\r\n,12,7\r\n',
    ],
    ids=["lines", "usage", "csv", "csv-odd"],
)
def test_lengths_are_counted(tmp_path, text):
    assert load(written(tmp_path, text)) == SAMPLE


def test_answers_need_not_be_told(tmp_path):
    assert load(written(tmp_path, "input_len\n12\n")) == Traffic(prompts=((12, 1),))


def test_very_many_lengths_are_rounded_up_and_none_is_lost(tmp_path):
    found = load(written(tmp_path, "prompt_tokens\n" + "\n".join(map(str, range(1, 10_001)))))
    assert found.requests == 10_000
    assert len(found.prompts) <= 4096
    assert found.prompts[0] == (4, 4)
    assert found.prompts[-1] == (10_000, 4)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (["1:1: no prompt length: expected", "did you mean 'prompt_tokens'?"], '{"promt_tokens": 3}'),
        (["2:2: not JSON: "], '{"prompt_tokens": 3}\n{"x'),
        (["2:1: expected an object with prompt_tokens, got "], '{"prompt_tokens": 3}\n[3]'),
        (["1:1: prompt_tokens: expected a whole number of tokens from 0 to 10000000, got -3"], '{"prompt_tokens": -3}'),
        (["1:1: prompt_tokens: expected", "got true"], '{"prompt_tokens": true}'),
        (["1:1: completion_tokens: expected", "got the text '7'"], '{"prompt_tokens": 3, "completion_tokens": "7"}'),
        (["1:1: the first line names no column of prompt lengths", "did you mean 'prompt_tokens'?"], "prompt_token\n3"),
        (["3:1: prompt_tokens: expected", "got the text 'many'"], "prompt_tokens\n3\nmany\n"),
        (["2:1: expected 2 fields as in the first line, got 1"], "prompt_tokens,completion_tokens\n3\n"),
        (["2:1: prompt_tokens: expected", "got nothing"], "prompt_tokens,a\n,3\n"),
    ],
)
def test_a_wrong_record_is_named_by_its_line(tmp_path, expected, text):
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, text))
    for piece in expected:
        assert piece in str(caught.value)


def test_all_wrong_records_are_listed_at_once_but_no_more_than_twenty(tmp_path):
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, "prompt_tokens\n" + "x\n" * 50))
    assert [problem.line for problem in caught.value.problems] == list(range(2, 22))


@pytest.mark.parametrize(
    ("expected", "text"),
    [("holds no request", ""), ("holds no request", "prompt_tokens\n"), ("one JSON array", '[{"prompt_tokens": 3}]')],
)
def test_a_file_without_requests_is_an_error(tmp_path, expected, text):
    with pytest.raises(UsageError, match=expected):
        load(written(tmp_path, text))


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere: cannot be read: No such file"):
        load(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00prompt")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        load(tmp_path / "binary")


def test_a_sample_reaches_the_scenarios_that_make_use_of_one_and_no_others():
    known = scenario.load_all([scenario.builtin_dir()], probes=discover(), features=features.BY_ID)
    given = {each.id: each for each in plan.with_traffic(known, SAMPLE.prompts)}
    changed = [each.id for each in known if given[each.id] != each]
    assert changed == ["shape-ladder"]
    assert given["shape-ladder"].params.model_dump()["traffic"] == [[12, 2], [300, 1]]
