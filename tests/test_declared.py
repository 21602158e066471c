"""Declared against observed: support matrices read, mapped to rows, and set beside what was seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servecheck import declared, features
from servecheck.errors import ScenarioError, UnknownName, UsageError
from servecheck.lint import lint
from servecheck.model import Cell, Kind, Status
from servecheck.reference.mock import background
from servecheck.reference.server import ReferenceServer
from servecheck.schema.declared_v1 import Claim
from tests.commands import servecheck

# Written for these tests in the shapes that vllm-project/tpu-inference has had.
NOW = """Feature,CorrectnessTest,PerformanceTest
"Chunked Prefill",✅ Passing,✅ Passing
"KV Cache Offload",✅ Passing,✅ Passing
"LoRA_Torch",❌ Failing,❓ Untested
"Multimodal Inputs",✅ Passing,❌ Failing
"Speculative Decoding: Ngram",✅ Passing,✅ Passing
"sampling_params",✅ Passing,❓ Untested
"structured_decoding",❓ Untested,❓ Untested
"""
BEFORE = """Feature,CorrectnessTest,PerformanceTest
"Prefix Caching",✅,✅
"Multimodal Inputs",🚧,🚧
"LoRA_Torch",N/A,N/A
"""
MODELS = """Model,Type,UnitTest,Accuracy/Correctness,Benchmark
"Qwen/Qwen3-4B",Text,✅ Passing,❌ Failing,✅ Passing
"mistralai/Small/text-only",Text,❓ Untested,✅ Passing,❓ Untested
"""
FORMATS = """Quantization dtype,Quantization methods,Recommended TPU Generations,CorrectnessTest,PerformanceTest
"AWQ INT4",,"v5, v6",❓ Untested,❓ Untested
"""
HOSTS = """Feature,Single-Host CorrectnessTest,Single-Host PerformanceTest,Multi-Host CorrectnessTest
"TP",✅ Passing,✅ Passing,❓ Untested
"""


def says(text: str, model: str | None = None) -> dict[str, Claim]:
    return {one.row: one.says for one in declared.read_csv("tpu", "m.csv", text.encode(), model=model).rows}


def cell(row: str, status: Status, endpoint: str = "tpu") -> Cell:
    return Cell(feature=row, endpoint=endpoint, status=status, reason="r", kind=features.get(row).kind)


def test_a_feature_matrix_speaks_of_rows_by_its_column_of_correctness():
    found = says(NOW)
    assert found["lora.effect"] is Claim.UNSUPPORTED
    assert found["vision.image"] is Claim.SUPPORTED
    assert found["sampling.min_p"] is Claim.SUPPORTED
    assert found["structured.json_schema"] is Claim.UNVERIFIED
    assert {features.get(row).kind for row in found} == {Kind.JUDGED}


def test_older_files_have_bare_marks():
    found = says(BEFORE)
    assert found["prefix_cache.reuse"] is Claim.SUPPORTED
    assert found["vision.image"] is Claim.PLANNED
    assert found["lora.effect"] is Claim.UNVERIFIED


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen3-4B", {"chat.basic": Claim.UNSUPPORTED}),
        ("mistralai/Small", {"chat.basic": Claim.SUPPORTED}),
        ("Qwen/Qwen3", {}),
        (None, {}),
    ],
)
def test_of_a_matrix_of_models_the_served_one_counts(model, expected):
    assert expected == says(MODELS, model)


@pytest.mark.parametrize("text", [FORMATS, HOSTS])
def test_lines_that_no_row_is_about_are_kept_and_shown(text):
    found = declared.read_csv("tpu", "m.csv", text.encode())
    assert (found.rows, len(found.others)) == ((), 1)


@pytest.mark.parametrize(
    "data",
    [b"", b"a,b\n1,2\n", b"\xff\xfe\x00", b'Feature,CorrectnessTest\n"a', b"Model,Type\nx,y\n", b"<html/>"],
)
def test_something_else_is_refused_with_what_was_expected(data):
    with pytest.raises(UsageError, match=r"m\.csv: not a"):
        declared.read_csv("tpu", "m.csv", data)


@pytest.mark.parametrize(
    ("row", "claim", "seen", "contradicts"),
    [
        ("sampling.min_p", "supported", Status.IGNORED, True),
        ("sampling.min_p", "supported", Status.BROKEN, True),
        ("sampling.min_p", "supported", Status.UNSUPPORTED, True),
        ("sampling.min_p", "supported", Status.FLAKY, True),
        ("sampling.min_p", "supported", Status.DEGRADED, False),
        ("sampling.min_p", "supported", Status.INCONCLUSIVE, False),
        ("sampling.min_p", "supported", Status.ERROR, False),
        ("sampling.min_p", "supported", Status.SKIPPED, False),
        ("sampling.min_p", "unsupported", Status.SUPPORTED, True),
        ("sampling.min_p", "unsupported", Status.BROKEN, False),
        ("sampling.min_p", "unverified", Status.BROKEN, False),
        ("sampling.min_p", "experimental", Status.BROKEN, False),
        # Not offered where the server was not started so: no contradiction; broken is one.
        ("speculative.active", "supported", Status.UNSUPPORTED, False),
        ("speculative.active", "supported", Status.BROKEN, True),
    ],
)
def test_a_contradiction_is_a_decided_row_against_a_clear_claim(tmp_path, row, claim, seen, contradicts):
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: servecheck/declared/v1\nsource: us\nrows:\n  {row}: {claim}\n")
    matrix = declared.read("tpu", str(path), features=features.BY_ID)
    (one,) = declared.beside([matrix], [cell(row, seen), cell(row, Status.SUPPORTED, "gpu")])
    assert (contradicts, seen) == (one.contradicts, one.seen)


def test_contradictions_come_first_and_a_row_without_a_cell_contradicts_nothing():
    matrix = declared.read_csv("tpu", "m.csv", NOW.encode())
    found = declared.beside([matrix], [cell("sampling.min_p", Status.IGNORED)])
    assert (found[0].declared.row, found[0].contradicts) == ("sampling.min_p", True)
    assert {one.contradicts for one in found[1:]} == {False}


def test_a_matrix_of_your_own_may_quote_words(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: servecheck/declared/v1\nsource: the vendor's page\nas_of: 2026-11-01\nrows:\n"
        "  tools.auto: {says: supported, words: 'Function calling: GA'}\n  chat.stop: planned\n"
    )
    found = declared.read("tpu", str(path), features=features.BY_ID)
    assert [(one.row, one.says, one.words) for one in found.rows] == [
        ("tools.auto", Claim.SUPPORTED, "Function calling: GA"),
        ("chat.stop", Claim.PLANNED, "planned"),
    ]
    assert (found.source, found.as_of) == ("the vendor's page", "2026-11-01")
    assert found == next(declared.from_header(declared.as_header([found])))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("tools.aut: supported", "did you mean 'tools.auto'?"),
        ("tools.auto: works", "expected 'supported', 'unsupported'"),
        ("parity.logprobs: supported", "has a value and no status"),
    ],
)
def test_lint_and_the_loader_say_what_is_wrong_with_a_matrix(tmp_path, rows, said):
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: servecheck/declared/v1\nsource: us\nrows:\n  {rows}\n")
    assert any(said in str(one) for one in lint([path], probes={}, features=features.BY_ID))
    with pytest.raises(ScenarioError, match=r"mine\.yaml:4"):
        declared.read("tpu", str(path), features=features.BY_ID)


@pytest.mark.parametrize(
    ("given", "endpoints", "expected"),
    [
        ("tpu=a/b.csv", ["gpu", "tpu"], ("tpu", "a/b.csv")),
        ("tpu=https://x.example/m.csv?a=b", ["gpu", "tpu"], ("tpu", "https://x.example/m.csv?a=b")),
        ("https://x.example/m.csv?a=b", ["tpu"], ("tpu", "https://x.example/m.csv?a=b")),
        ("m.csv", ["tpu"], ("tpu", "m.csv")),
    ],
)
def test_a_matrix_is_given_for_an_endpoint(given, endpoints, expected):
    assert [expected] == declared.requested([given], endpoints)


def test_of_several_endpoints_one_is_named_and_exists():
    with pytest.raises(UsageError, match="say of which endpoint"):
        declared.requested(["m.csv"], ["gpu", "tpu"])
    with pytest.raises(UnknownName, match="did you mean 'tpu'"):
        declared.requested(["tpux=m.csv"], ["gpu", "tpu"])


def test_an_address_is_fetched_and_a_file_that_is_not_there_is_said():
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return NOW.encode()

    found = declared.read("tpu", "https://x.example/m.csv", features=features.BY_ID, fetch=fetch)
    assert (len(found.digest), asked) == (64, ["https://x.example/m.csv"])
    with pytest.raises(UsageError, match="No such file"):
        declared.read("tpu", "nowhere.csv", features=features.BY_ID)


# --------------------------------------------------------------------------- a run as a whole


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("declared")
    (folder / "mine.yaml").write_text(
        "schema: servecheck/declared/v1\nsource: the vendor's page\nrows:\n"
        "  chat.basic: {says: unsupported, words: Chat ⛔}\n  chat.stop: supported\n"
    )
    (folder / "endpoints.yaml").write_text(
        "schema: servecheck/endpoints/v1\nendpoints:\n  tpu:\n    base_url: {url}\n"
        "    declared: {{tpu_stack: tpu-inference, quantization: gptq, engine: vllm}}\n"
    )
    with background(ReferenceServer(decode_seconds=0.001)) as url:
        text = (folder / "endpoints.yaml").read_text().format(url=url)
        (folder / "endpoints.yaml").write_text(text)
        words: list[str | Path] = ["--endpoints", folder / "endpoints.yaml", "--declared", folder / "mine.yaml"]
        dry = servecheck("run", *words, "--feature", "chat.basic", "--dry-run")
        assert "warning: tpu: gptq (declared by the user) is not among the formats" in dry.err
        said = servecheck("run", *words, "--feature", "chat.basic", "--trials", "1", "--out", folder / "run")
        assert said.code == 0, said.err
        assert "warning: tpu: gptq" in said.err
    return folder


def test_a_run_keeps_the_matrix_and_its_report_opens_with_the_contradiction(recorded):
    (recorded / "mine.yaml").rename(recorded / "moved.yaml")  # the folder says it by itself
    said = servecheck("report", recorded / "run")
    (recorded / "moved.yaml").rename(recorded / "mine.yaml")
    assert "**Declared ❌, observed ✅:** [`chat.basic`]" in said.out.partition("## Decide")[0]
    assert "its support matrix says “Chat ⛔”" in said.out
    assert "declared by the vendor's page" in said.out.replace("\\", "")
    assert "Declared and not decided by this run: `chat.stop`" in said.out
    assert "gptq (declared by the user) is not among the formats" in said.out.partition("## Notes")[2].replace("\\", "")


def test_results_say_what_is_declared(recorded):
    results = json.loads((recorded / "run" / "results.json").read_text())
    (first, second) = results["declared"]
    assert (first["feature"], first["says"], first["observed"], first["contradiction"]) == (
        "chat.basic", "unsupported", "supported", True
    )  # fmt: skip
    assert (second["feature"], second["observed"], second["contradiction"]) == ("chat.stop", "skipped", False)
    assert any("gptq" in note for note in results["notes"])


def test_judging_again_may_use_another_matrix(recorded):
    (recorded / "other.yaml").write_text(
        "schema: servecheck/declared/v1\nsource: someone else\nrows:\n  chat.basic: supported\n"
    )
    said = servecheck("judge", recorded / "run", "--declared", f"tpu={recorded / 'other.yaml'}", "--json")
    assert [one["contradiction"] for one in json.loads(said.out)["declared"]] == [False]
    again = servecheck("judge", recorded / "run", "--json")
    assert len(json.loads(again.out)["declared"]) == 2


def test_two_runs_put_together_keep_what_is_declared_of_each_side(recorded, tmp_path):
    said = servecheck("compare", recorded / "run", recorded / "run", "--out", tmp_path / "both", "--json")
    found = {(one["endpoint"], one["feature"]) for one in json.loads(said.out)["declared"]}
    assert len({endpoint for endpoint, _ in found}) == 2
    assert {row for _, row in found} == {"chat.basic", "chat.stop"}
