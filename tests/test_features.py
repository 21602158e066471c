"""The rows are a contract: ids, marks and order are those of the catalogue, written here a second time."""

import pytest

from servecheck import features
from servecheck.errors import UnknownName
from servecheck.model import Kind, Risk

# One line per row of the catalogue: names that share a group, then their marks.
CATALOGUE = """
identity .models .engine .replicas | C/P/E
health .ready | C
metrics .exposed | E
chat .basic .multi_turn .content_parts .max_tokens .stop .n .context_limit | C/C/E/C/C/E/C
completions .basic .stream .echo | E/E/E
streaming .frames .incremental .equals_non_stream .usage .continuous_usage .utf8 .cancel | C/C/C/C/E/C/C
sampling .greedy .temperature | P/C
sampling .top_p .top_k .min_p | C/E/E
sampling .seed .logit_bias | E/C
sampling .frequency_penalty .presence_penalty .repetition_penalty | C/C/E
sampling .bad_words .allowed_token_ids .stop_token_ids .min_tokens .ignore_eos | E/E/E/E/E
logprobs .chat .stream .completions .prompt | C/C/E/O
structured .json_object .json_schema .keywords | C/C/E
structured .regex .choice .grammar .structural_tag | E/E/E/E
structured .legacy_guided | P
structured .stream .completions .responses | C/E/E
structured .concurrent .truncated .bad_schema | C/E/C
tools .auto .required .named .none .stream .parallel .parallel_off | C/C/C/E/C/E/E
tools .round_trip .strict .truncated | C/E/E
reasoning .split .stream .toggle .structured | E/E/E/E
responses .basic .stream .tools .structured .previous | E/E/E/E/E
messages .basic .stream | E/E
embeddings .basic .batch .base64 .dimensions | E/E/E/E
rerank .basic | E
tokenize .round_trip | E
prefix_cache .reuse .conversation .correct .reported .isolation | C/C/C/E/E
concurrency .batching .isolation .batch_invariance .overload | C/C/P/E
compile .recompilation | C
parity .tokens .logprobs .greedy .finish | X/X/X/X
quantization .identity .sanity .recovery | P/C/E
errors .malformed .wrong_type .bad_value .empty_messages .unknown_model | C/C/C/C/C
errors .unknown_field .family .leniency | P/P/P
auth .required .admin_exposed | E/E
sdk .chat .stream .tools .parse .responses | C/C/E/E/E
vision .image | E
images .generate | E
audio .transcribe | E
lora .listed .effect | E/E
speculative .active | E
performance .latency | P
"""


def catalogued() -> dict[str, str]:
    marks = {}
    for line in CATALOGUE.strip().splitlines():
        names, _, letters = line.partition(" | ")
        group, *rows = names.split()
        for row, letter in zip(rows, letters.split("/"), strict=True):
            marks[group + row] = letter
    return marks


def test_every_row_of_the_catalogue_is_there_once_and_in_its_order():
    assert [*catalogued()] == [feature.id for feature in features.FEATURES]


def test_core_means_marked_c_and_nothing_else():
    expected = {feature_id for feature_id, mark in catalogued().items() if mark == "C"}
    assert expected == {feature.id for feature in features.FEATURES if feature.core}


def test_kinds_follow_the_marks():
    kinds = {"P": Kind.PROPERTY, "X": Kind.COMPARISON}
    expected = {feature_id: kinds.get(mark, Kind.JUDGED) for feature_id, mark in catalogued().items()}
    assert expected == {feature.id: feature.kind for feature in features.FEATURES}


def test_only_four_rows_are_a_risk_as_a_whole():
    expected = {
        "logprobs.prompt": Risk.DANGEROUS,
        "structured.keywords": Risk.DANGEROUS,
        "concurrency.overload": Risk.LOAD,
        "compile.recompilation": Risk.LOAD,
    }
    assert expected == {feature.id: feature.risk for feature in features.FEATURES if feature.risk is not Risk.SAFE}


@pytest.mark.parametrize("feature", features.FEATURES, ids=lambda feature: feature.id)
def test_a_row_is_titled_and_asks_one_question(feature):
    assert feature.title.strip() == feature.title != ""
    assert feature.question.endswith("?")
    assert feature.question.count("?") == 1
    assert len(feature.question) <= 100


@pytest.mark.parametrize("field", ["title", "question"])
def test_no_two_rows_read_the_same(field):
    read = [getattr(feature, field) for feature in features.FEATURES]
    assert sorted(set(read)) == sorted(read)


def test_groups_are_in_display_order_and_each_is_one_block():
    blocks: list[str] = []
    for feature in features.FEATURES:
        if not blocks or blocks[-1] != feature.group:
            blocks.append(feature.group)
    assert tuple(blocks) == features.GROUPS
    assert features.GROUPS[:4] == ("identity", "health", "metrics", "chat")


def test_get_returns_the_row_of_that_id():
    assert features.get("chat.stop").id == "chat.stop"


def test_get_suggests_the_nearest_row():
    with pytest.raises(UnknownName, match=r"unknown feature 'chat.stopp'; did you mean 'chat.stop'\?"):
        features.get("chat.stopp")


@pytest.mark.parametrize(
    ("expected", "glob"),
    [
        (("chat.stop",), "chat.stop"),
        (("completions.basic", "completions.stream", "completions.echo"), "completions"),
        (("completions.basic", "completions.stream", "completions.echo"), "completions.*"),
        (("sampling.top_p", "sampling.top_k"), "sampling.top_?"),
        (("sampling.top_p",), "sampling.top_[p]"),
        (("logprobs.completions", "structured.completions"), "*.completions"),
        ((), "no.such.*"),
        ((), "CHAT.*"),
    ],
)
def test_matching_selects_by_glob_id_or_group_in_display_order(expected, glob):
    assert expected == tuple(feature.id for feature in features.matching(glob))


@pytest.mark.parametrize(("suggestion", "name"), [("streaming", "streming"), ("tools.auto", "tools.auot"), ("", "zzz")])
def test_a_literal_that_names_nothing_is_an_error_with_the_nearest_name(suggestion, name):
    with pytest.raises(UnknownName) as caught:
        features.matching(name)
    assert suggestion == caught.value.suggestion


def test_a_star_selects_every_row():
    assert features.matching("*") == features.FEATURES
