"""One setting that explains many rows is named once, with what to do; what does not show is not guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servecheck import features
from servecheck.model import Cell, Finding, Fingerprint, How, Kind, Known, Outcome, Status
from servecheck.report.view import view
from servecheck.root_causes import ROOT_CAUSES, Hit, explain
from tests.sample_runs import fake_curl, two_endpoints

S = Status
NO_PARSER = (
    'refused: HTTP 400: “"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set”'
)


def known(**fields: str) -> Fingerprint:
    return Fingerprint(
        fields={name: Known(value=value, how=How.OBSERVED, source="s") for name, value in fields.items()}
    )


def cell(feature: str, status: Status, why: str = "because", *, endpoint: str = "it", value: str | None = None) -> Cell:
    kind = features.get(feature).kind
    outcome = Outcome.HELD if status is S.SUPPORTED else Outcome.VIOLATED
    return Cell(
        feature=feature,
        endpoint=endpoint,
        status=status,
        reason=why,
        kind=kind,
        value=value,
        findings=() if kind is Kind.PROPERTY else (Finding(check="c", outcome=outcome, why=why),),
    )


def hits(cells: list[Cell], fingerprint: Fingerprint) -> dict[str, tuple[str, ...]]:
    return {hit.cause.id: hit.rows for hit in explain(cells, {"it": fingerprint})}


VLLM, SGLANG, LLAMA = known(engine="vllm"), known(engine="sglang"), known(engine="llama.cpp")
SHOWN: dict[str, tuple[str, Cell, Fingerprint]] = {
    # name: (cause, a cell that shows it, the fingerprint)
    "vllm refuses tools": ("no-tool-parser", cell("tools.auto", S.UNSUPPORTED, NO_PARSER), VLLM),
    "the refusal speaks where a gateway hides the engine": (
        "no-tool-parser",
        cell("sdk.tools", S.UNSUPPORTED, NO_PARSER),
        known(gateway="litellm"),
    ),
    "sglang returns calls as text": (
        "no-tool-parser",
        cell("tools.required", S.BROKEN, "the call came back as text, which no client looks for: “[{…”"),
        SGLANG,
    ),
    "sglang says that it has no parser": (
        "no-tool-parser",
        cell("tools.auto", S.IGNORED),
        known(engine="sglang", tool_call_parser="none"),
    ),
    "llama.cpp says that its template knows no tools": (
        "template-without-tools",
        cell("tools.required", S.IGNORED),
        known(engine="llama.cpp", template_tools="no"),
    ),
    "vllm does not report cached tokens": (
        "prompt-token-details-off",
        cell("prefix_cache.reported", S.UNSUPPORTED),
        VLLM,
    ),
    "sglang does not report cached tokens": (
        "cache-report-off",
        cell("prefix_cache.reported", S.UNSUPPORTED),
        known(engine="sglang", cache_report="False"),
    ),
    "the cache is off": (
        "prefix-cache-off",
        cell("prefix_cache.reuse", S.UNSUPPORTED),
        known(engine="vllm", prefix_caching="False"),
    ),
    "sglang has no metrics": ("metrics-off", cell("metrics.exposed", S.UNSUPPORTED, "refused: HTTP 404"), SGLANG),
    "llama.cpp has no metrics": (
        "metrics-off",
        cell(
            "metrics.exposed",
            S.UNSUPPORTED,
            "HTTP 501: “This server does not support metrics endpoint. Start it with `--metrics`”",
        ),
        LLAMA,
    ),
    "answers lie in the reasoning": (
        "wrong-reasoning-parser",
        cell("structured.json_schema", S.BROKEN, "content is empty and the answer is in the reasoning: “{…”"),
        SGLANG,
    ),
    "a call lies in the reasoning": (
        "wrong-reasoning-parser",
        cell("tools.required", S.BROKEN, "the call came back as reasoning: “{…”"),
        known(engine="sglang", tool_call_parser="none"),
    ),
    "a short answer lies in the reasoning": (
        "wrong-reasoning-parser",
        cell("reasoning.split", S.BROKEN, "content is empty and the answer is in the reasoning, in 5 of 5 replies"),
        SGLANG,
    ),
    "tags are in the content": (
        "no-reasoning-parser",
        cell("reasoning.split", S.BROKEN, "the content holds marks of thinking (</think>): “5 it is.</think>5”"),
        LLAMA,
    ),
    "n is more than the slots": (
        "more-answers-than-slots",
        cell("chat.n", S.UNSUPPORTED, "HTTP 400: “Field 'n': Value must be between 1 <= value <= 1, but got 3”"),
        LLAMA,
    ),
    "requests wait for each other": (
        "one-slot",
        cell(
            "concurrency.batching", S.UNSUPPORTED, "0 of 1 short requests passed; the server says that it has one slot"
        ),
        known(engine="llama.cpp", slots="1"),
    ),
    "no embeddings": (
        "embeddings-off",
        cell("embeddings.basic", S.UNSUPPORTED, "HTTP 501: “… Start it with `--embeddings`”"),
        LLAMA,
    ),
    "arguments without strict": (
        "arguments-need-strict",
        cell(
            "tools.named", S.DEGRADED, "'city' is a required property; vLLM and SGLang enforce … only with strict: true"
        ),
        VLLM,
    ),
    "the seed is ignored": (
        "deterministic-inference-off",
        cell("sampling.seed", S.IGNORED),
        known(engine="sglang", deterministic="False"),
    ),
    "the seed is refused on TPU": (
        "seed-not-on-tpu",
        cell("concurrency.isolation", S.UNSUPPORTED, "HTTP 400: “JAX does not support per-request seed.”"),
        VLLM,
    ),
    "an innocent first schema broke tool calls": (
        "first-schema-chose-the-back-end",
        cell("structured.keywords", S.BROKEN, "after these schemas a forced tool call fails, and others may: HTTP 500"),
        VLLM,
    ),
    "llama.cpp calls it repeat_penalty": (
        "repetition-penalty-has-another-name",
        cell("sampling.repetition_penalty", S.IGNORED),
        LLAMA,
    ),
    "sglang does not know bad_words": ("fields-of-vllm", cell("sampling.bad_words", S.IGNORED), SGLANG),
    "llama.cpp does not know min_tokens": ("fields-of-vllm", cell("sampling.min_tokens", S.IGNORED), LLAMA),
    "vllm misses a long word": (
        "bad-words-of-several-tokens",
        cell("sampling.bad_words", S.DEGRADED, "“harbour” banned … as without the ban; another word does stay away"),
        VLLM,
    ),
    "the model writes something else than the parser reads": (
        "template-and-parser-disagree",
        cell(
            "tools.auto",
            S.BROKEN,
            "HTTP 500: “The model produced output that does not match the expected peg-native format”",
        ),
        LLAMA,
    ),
    "the named tool is not the one that is called": (
        "named-choice-taken-for-auto",
        cell("tools.named", S.IGNORED, "called “fn_a” where “fn_b” was asked for, as it does without the choice"),
        LLAMA,
    ),
    "several calls come only where they are asked for": (
        "parallel-calls-are-opt-in",
        cell("tools.parallel", S.DEGRADED, "1 call(s) without parallel_tool_calls, 2 with true"),
        LLAMA,
    ),
    "the tools are off and in the prompt": (
        "tools-shown-although-off",
        cell(
            "tools.none", S.DEGRADED, "the model was told of the tools although they are off, and its call is the text"
        ),
        VLLM,
    ),
    "shapes stall at their first use": (
        "compiled-while-serving",
        cell("compile.recompilation", S.DEGRADED, "6 of 12 shapes stalled at their first use: 48 tokens 9.6 s"),
        VLLM,
    ),
    "vllm forgets a response at once": (
        "response-store-off",
        cell("responses.previous", S.UNSUPPORTED, "refused: HTTP 404: “Response with id 'resp_b6a1' not found.”"),
        VLLM,
    ),
    "sglang says that it stores nothing": (
        "response-store-off",
        cell("responses.previous", S.UNSUPPORTED, "refused: HTTP 400: “Response store is disabled”"),
        SGLANG,
    ),
    "llama.cpp answers prose to a format": (
        "text-format-unread",
        cell("structured.responses", S.IGNORED, "200, and no schema in the answer: “The sea …”"),
        LLAMA,
    ),
    "guided fields are ignored": (
        "guided-fields-renamed",
        cell("structured.legacy_guided", S.SUPPORTED, value="guided_json ignored"),
        VLLM,
    ),
    "llama.cpp ranks nothing": (
        "reranking-off",
        cell(
            "rerank.basic",
            S.UNSUPPORTED,
            "refused: HTTP 501: “This server does not support reranking. Start it with `--reranking`”",
        ),
        LLAMA,
    ),
    "llama.cpp embeds the end of a long text": (
        "slots-cut-long-texts-of-a-batch",
        cell("embeddings.batch", S.BROKEN, "the three texts among 3: cosine to the lone vector at least 0.83808"),
        LLAMA,
    ),
    "llama.cpp fails on a text beyond its batch": (
        "embedding-longer-than-a-batch",
        cell(
            "embeddings.basic",
            S.BROKEN,
            "a text beyond the limit: HTTP 500: “input (4160 tokens) is too large to process. increase the physical "
            "batch size (…”",
        ),
        LLAMA,
    ),
    "sglang refuses dimensions": (
        "no-matryoshka",
        cell(
            "embeddings.dimensions", S.UNSUPPORTED, "HTTP 400: “Model 'm' does not support matryoshka representation”"
        ),
        SGLANG,
    ),
    "vllm refuses an image": (
        "model-takes-no-images",
        cell("vision.image", S.UNSUPPORTED, "an image is refused: HTTP 400: “smollm2 is not a multimodal model”"),
        VLLM,
    ),
    "llama.cpp fails on an image": (
        "model-takes-no-images",
        cell("vision.image", S.BROKEN, "an image: HTTP 500: “image input is not supported - hint: …”"),
        LLAMA,
    ),
    "sglang hears nothing": (
        "model-hears-nothing",
        cell("audio.transcribe", S.BROKEN, "HTTP 500: “Internal server error: Unexpected keyword argument 'language'”"),
        SGLANG,
    ),
    "an adapter does nothing": (
        "adapter-matches-nothing",
        cell("lora.effect", S.IGNORED, "“zero” changes nothing, to the last digit of 3 first tokens"),
        VLLM,
    ),
    "litellm hides metrics": (
        "metrics-behind-a-gateway",
        cell("metrics.exposed", S.UNSUPPORTED, "HTTP 404; a gateway (litellm) hides the engine's own (give …)"),
        known(engine="vllm", gateway="litellm"),
    ),
    "a gateway that nothing shows may hide them": (
        "metrics-behind-a-gateway",
        cell("metrics.exposed", S.UNSUPPORTED, "HTTP 404; a gateway may hide the engine's own (give …)"),
        known(),
    ),
    "a proxy gathers a stream": (
        "gateway-buffers",
        cell(
            "streaming.incremental", S.BROKEN, "1 arrivals; all come at once, as behind a proxy that gathers the reply"
        ),
        VLLM,
    ),
    "two versions answer": (
        "replicas-differ",
        cell("identity.replicas", S.BROKEN, "2 fingerprints: “a” 10 of 20, “b” 10 of 20"),
        VLLM,
    ),
    "a prefix is reused by one of two": (
        "replicas-without-prefix-routing",
        cell(
            "prefix_cache.reuse",
            S.DEGRADED,
            "reused at 2 of 4 tries: as where replicas have a cache each and nothing …",
        ),
        VLLM,
    ),
    "a grammar lets blanks run on": (
        "white-space-unbounded",
        cell(
            "structured.json_schema", S.DEGRADED, "cut by max_tokens after 300 characters of white space in a row: “{…”"
        ),
        SGLANG,
    ),
    "a template refuses the developer": (
        "template-without-developer",
        cell(
            "chat.multi_turn",
            S.DEGRADED,
            "the role developer is refused: HTTP 400: “Unexpected message role.”",
        ),
        VLLM,
    ),
}
OF_EVERY_ENGINE = {cause.id for cause in ROOT_CAUSES if all(not sign.engines for sign in cause.signs)}
"""What TPUs and gateways do is no engine's flag."""


@pytest.mark.parametrize("name", SHOWN)
def test_each_cause_is_recognised_where_it_shows(name):
    cause, shows, fingerprint = SHOWN[name]
    assert hits([shows], fingerprint) == {cause: (shows.feature,)}


def test_every_cause_of_the_table_has_been_seen():
    assert {cause for cause, _, _ in SHOWN.values()} == {cause.id for cause in ROOT_CAUSES}


@pytest.mark.parametrize("name", [name for name in SHOWN if SHOWN[name][1].kind is Kind.JUDGED])
@pytest.mark.parametrize("status", [S.SUPPORTED, S.SKIPPED, S.INCONCLUSIVE, S.ERROR])
def test_a_row_without_a_shortfall_needs_no_explanation(name, status):
    _, shows, fingerprint = SHOWN[name]
    assert hits([replace(shows, status=status)], fingerprint) == {}


@pytest.mark.parametrize("name", SHOWN)
def test_another_engine_is_not_explained_by_this_one_s_flags(name):
    cause, shows, _ = SHOWN[name]
    assert hits([shows], known(engine="somebody-else")) == (
        {cause: (shows.feature,)} if cause in OF_EVERY_ENGINE else {}
    )


@pytest.mark.parametrize(
    ("shows", "fingerprint"),
    [
        (cell("tools.auto", S.UNSUPPORTED, "refused: HTTP 400: “tools are not for you”"), VLLM),
        (cell("tools.required", S.IGNORED), known(engine="sglang", tool_call_parser="hermes")),
        (cell("tools.required", S.IGNORED), known(engine="llama.cpp", template_tools="yes")),
        (cell("tools.required", S.IGNORED), LLAMA),
        (cell("prefix_cache.reuse", S.UNSUPPORTED), known(engine="vllm", prefix_caching="True")),
        (cell("prefix_cache.reported", S.BROKEN, "reports more than there is"), VLLM),
        (cell("metrics.exposed", S.BROKEN, "HTTP 500"), SGLANG),
        (cell("chat.n", S.BROKEN, "2 choices instead of 3"), LLAMA),
        (cell("sampling.seed", S.IGNORED), VLLM),
        (cell("structured.legacy_guided", S.SUPPORTED, value="guided_json honoured"), VLLM),
    ],
)
def test_what_does_not_show_is_not_guessed(shows, fingerprint):
    assert hits([shows], fingerprint) == {}


def test_one_cause_explains_all_its_rows_and_each_endpoint_has_its_own():
    rows = ("tools.auto", "tools.required", "tools.stream", "sdk.tools")
    cells = [cell(row, S.UNSUPPORTED, NO_PARSER, endpoint=name) for name in ("a", "b") for row in rows]
    assert explain([*cells, cell("chat.n", S.BROKEN, endpoint="a")], {"a": VLLM, "b": VLLM}) == tuple(
        Hit(cause=next(c for c in ROOT_CAUSES if c.id == "no-tool-parser"), endpoint=name, rows=rows)
        for name in ("a", "b")
    )


def test_a_finding_that_held_shows_no_cause():
    held = Finding(check="c", outcome=Outcome.HELD, why=NO_PARSER)
    assert hits([replace(cell("tools.auto", S.DEGRADED), findings=(held,))], VLLM) == {}


def test_the_table_names_real_rows_and_says_where_it_knows_from():
    assert len({cause.id for cause in ROOT_CAUSES}) == len(ROOT_CAUSES)
    for cause in ROOT_CAUSES:
        assert cause.source.startswith("https://")
        assert len(cause.remedy) <= 300, f"{cause.id}: the report cuts longer remedies"
        for sign in cause.signs:
            assert sign.said is not None or sign.fields or sign.engines
            for pattern in sign.rows:
                assert features.matching(pattern), pattern


def test_decide_shows_one_entry_per_cause_with_all_its_rows_and_the_worst_mark():
    run = replace(
        two_endpoints(),
        causes={f"{row}@tpu": "One flag" for row in ("structured.json_schema", "streaming.usage", "sampling.top_p")},
        remedies={"sampling.top_p@tpu": "set the flag"},
    )
    first, *others = view(run, fake_curl).blockers
    assert [feature for feature, _ in first.rows] == ["structured.json_schema", "streaming.usage", "sampling.top_p"]
    assert (first.mark, first.word) == ("❌", "ignored 3/3, broken 1/1, unsupported 1/1")
    assert first.reason == "One flag (no chunk carried usage)"
    assert first.remedy == "set the flag"
    assert [[feature for feature, _ in blocker.rows] for blocker in others] == [
        ["structured.stream"],
        ["streaming.frames"],
    ]
