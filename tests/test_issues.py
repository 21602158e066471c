"""Open upstream issues: what is looked for, where, in which order it is read, and the command as a whole."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from servecheck import issues
from servecheck.errors import RateLimited, UpstreamError, UsageError
from servecheck.issues import Issue, Term
from servecheck.upstream import Wanted, failing_rows, find
from tests import sample_runs
from tests.commands import servecheck


def texts(terms: tuple[Term, ...]) -> list[str]:
    return [term.text for term in terms]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"},
            ["Qwen3MoeForCausalLM", "Qwen3Moe", "Qwen3 MoE"],
        ),
        (
            {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4_text"},
            ["Gemma4ForConditionalGeneration", "Gemma4", "gemma4_text"],
        ),
        ({"model_type": "llama"}, ["llama"]),
        ({"architectures": "x", "model_type": 3}, []),
    ],
)
def test_a_config_says_what_an_architecture_is_called(config, expected):
    assert expected == texts(issues.architecture_terms(config=config))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen3-32B", ["Qwen3-32B", "Qwen3"]),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", ["Qwen3-30B-A3B-Instruct-2507", "Qwen3 MoE", "Qwen3"]),
        ("Qwen/Qwen3.5-9B", ["Qwen3.5-9B", "Qwen3.5"]),
        ("google/gemma-4-31B-it", ["gemma-4-31B-it", "gemma-4"]),
        ("meta-llama/Llama-3.1-8B-Instruct", ["Llama-3.1-8B-Instruct", "Llama-3.1"]),
        ("openai/gpt-oss-20b", ["gpt-oss-20b", "gpt-oss"]),
        ("", []),
    ],
)
def test_of_a_name_the_family_is_a_guess(model, expected):
    assert expected == texts(issues.architecture_terms(model=model))


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        ("Qwen3", "Qwen3-32B hangs", True),
        ("Qwen3", "QWEN3 hangs.", True),
        ("Qwen3", "Qwen3.5 hangs", False),
        ("Qwen3", "Qwen3Moe hangs", False),
        ("Qwen3 MoE", "support Qwen3 MoE models", True),
        ("Qwen3 MoE", "qwen3_moe and Qwen3-MoE", True),
        ("Qwen3 MoE", "Qwen3MoeForCausalLM", False),
        ("Qwen3 MoE", "Qwen3 and MoE kernels", False),
        ("min_p", "`min_p` ignored", True),
        ("min_p", "admin_port", False),
    ],
)
def test_a_term_is_words_and_no_part_of_others(term, text, expected):
    assert expected is Term(text=term, kind="row").is_in(text)


def test_rows_with_the_same_words_are_searched_once_and_rows_without_words_are_named():
    terms, without = issues.row_terms(["tools.required", "sampling.min_p", "tools.named", "errors.family"])
    assert [(term.text, term.rows) for term in terms] == [
        ("tool_choice", ("tools.required", "tools.named")),
        ("min_p", ("sampling.min_p",)),
    ]
    assert without == ("errors.family",)


QWEN, MIN_P = Term(text="Qwen3", kind="architecture"), Term(text="min_p", kind="row", rows=("sampling.min_p",))


def issue(number: int, title: str, body: str = "", updated: str = "2026-11-01", labels: tuple[str, ...] = ()) -> Issue:
    url = f"https://github.com/vllm-project/tpu-inference/issues/{number}"
    return Issue(
        repository="vllm-project/tpu-inference",
        number=number,
        title=title,
        url=url,
        body=body,
        updated=updated,
        labels=labels,
    )


def test_what_touches_both_comes_first_then_titles_then_what_was_touched_last():
    given = [
        issue(1, "Docs are wrong"),
        issue(2, "Slow", body="with Qwen3", updated="2026-10-01"),
        issue(3, "Slower", body="with Qwen3", updated="2026-11-20"),
        issue(4, "min_p ignored"),
        issue(5, "Qwen3 crashes"),
        issue(6, "min_p ignored for Qwen3"),
        issue(7, "A crash", labels=("Qwen3",), updated="2026-01-01"),
    ]
    hits = issues.ranked(given, [QWEN, MIN_P])
    assert [hit.issue.number for hit in hits] == [6, 5, 7, 4, 3, 2]
    assert hits[0].because == ("Qwen3 in the title", "min_p (sampling.min_p) in the title")


def test_what_github_found_by_a_term_counts_although_our_words_do_not_find_it():
    one = issue(1, "Minimum probability is dropped")
    assert issues.ranked([one], [MIN_P]) == ()
    assert len(issues.ranked([one], [MIN_P], {one.url: [MIN_P]})) == 1


def test_an_issue_that_is_on_our_own_list_says_so():
    (hit,) = issues.ranked([issue(3213, "min_p")], [MIN_P])
    assert hit.known == "min_p is taken and dropped."


class Refused(UpstreamError):
    pass


class Asked:
    """A search that knows some repositories; ``limit`` ends it after so many queries."""

    def __init__(self, *known: str, limit: int = 99) -> None:
        self.known, self.limit, self.queries = known, limit, list[str]()

    async def __call__(self, query: str) -> Any:
        self.queries.append(query)
        repositories = [word.removeprefix("repo:") for word in query.split() if word.startswith("repo:")]
        if len(self.queries) > self.limit:
            raise RateLimited("used up; try again later")
        if unknown := [name for name in repositories if name not in self.known]:
            raise Refused(f"no {unknown[0]}")
        return [{"html_url": f"https://github.com/{repositories[0]}/issues/1", "title": "min_p"}], None, False


def look(asked: Asked, repositories: list[str], *terms: Term) -> issues.Looked:
    return asyncio.run(issues.look(terms, repositories, asked, Refused))


def test_one_search_a_term_asks_all_repositories():
    asked = Asked("a/b", "c/d")
    look(asked, ["a/b", "c/d"], QWEN, MIN_P)
    assert asked.queries == [
        'repo:a/b repo:c/d is:issue is:open in:title,body "Qwen3"',
        'repo:a/b repo:c/d is:issue is:open in:title,body "min_p"',
    ]


def test_a_repository_that_is_not_shown_to_us_is_named_and_the_others_are_asked():
    asked = Asked("a/b")
    looked = look(asked, ["a/b", "gone/x"], QWEN, MIN_P)
    assert looked.not_asked == ["gone/x: no gone/x"]
    assert len(asked.queries) == 4  # all, each by itself, and then only those that can be asked
    assert [*looked.issues] == ["https://github.com/a/b/issues/1"]


def test_a_limit_ends_the_search_and_keeps_what_was_found():
    looked = look(Asked("a/b", limit=1), ["a/b"], QWEN, MIN_P)
    assert len(looked.issues) == 1
    assert looked.not_asked == ["“min_p”: used up; try again later"]


def test_more_searches_than_github_allows_are_not_made():
    terms = [Term(text=f"term{number}", kind="row") for number in range(12)]
    asked = Asked("a/b")
    looked = look(asked, ["a/b"], *terms)
    assert (len(asked.queries), len(looked.not_asked)) == (issues.MOST_SEARCHES, 12 - issues.MOST_SEARCHES)


def test_pull_requests_are_no_issues():
    items: list[dict[str, object]] = [
        {"html_url": "https://github.com/a/b/pull/1", "title": "x", "pull_request": {}},
        {"title": "no url"},
    ]
    assert [*issues.from_api(items)] == []


EXPORT = [
    {
        "number": 7,
        "title": "Qwen3: wrong text",
        "url": "https://github.com/a/b/issues/7",
        "body": "min_p",
        "labels": [{"name": "bug"}],
        "updatedAt": "2026-11-20T10:00:00Z",
        "state": "OPEN",
    },
    {"number": 8, "title": "Qwen3: done", "url": "https://github.com/a/b/issues/8", "state": "CLOSED"},
    {"title": "Qwen3: short entry", "url": "https://github.com/c/d/issues/9"},
]


def test_an_export_is_read_and_what_is_closed_is_left_out():
    found = issues.from_export(json.dumps(EXPORT), "x.json")
    assert [(one.number, one.repository, one.labels, one.updated) for one in found] == [
        (7, "a/b", ("bug",), "2026-11-20"),
        (0, "c/d", (), ""),
    ]


@pytest.mark.parametrize("text", ["{", "{}", "[3]", '[{"title": "x"}]', "[" * 100_000])
def test_something_else_is_refused_with_the_command_that_makes_it(text):
    with pytest.raises(UsageError, match=r"gh issue list|not JSON"):
        issues.from_export(text, "x.json")


@pytest.mark.parametrize("name", ["vllm", "a/b/c", "a b/c", "", "../x/y"])
def test_a_repository_is_an_owner_and_a_name(name):
    with pytest.raises(UsageError, match="OWNER/NAME"):
        issues.valid_repository(name)


def test_the_address_of_a_repository_will_do():
    assert issues.valid_repository("https://github.com/vllm-project/vllm/") == "vllm-project/vllm"


# --------------------------------------------------------------------------- the command


class Handler(BaseHTTPRequestHandler):
    """GitHub's search, as far as it is asked here."""

    asked: ClassVar[list[str]] = []
    limit: ClassVar[int] = 99

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["q"][0]
        self.asked.append(query)
        limited = len(self.asked) > self.limit
        title = "Qwen3 and min_p" if "min_p" in query else "Qwen3 stops"
        number = 2 if "min_p" in query else 1
        url = f"https://github.com/vllm-project/tpu-inference/issues/{number}"
        items = [
            {"html_url": url, "title": f"{title} \x1b[31m", "number": number, "updated_at": "2026-11-20T10:00:00Z"}
        ]
        body = json.dumps({} if limited else {"items": items}).encode()
        self.send_response(403 if limited else 200)
        for name, value in {"retry-after": "60"}.items() if limited else {"etag": f'"{number}"'}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def github(monkeypatch, tmp_path) -> Iterator[type[Handler]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.asked, Handler.limit = [], 99
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("SERVECHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    try:
        yield Handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_command_asks_the_trackers_of_the_stack_and_warns_of_the_format_first(github, tmp_path):
    config = {"architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "gptq"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = servecheck("issues", "--config", "config.json", "--stack", "torchtpu")
    assert said.code == 0, said.err
    assert said.out.startswith("before any request: gptq (quant_method in config.json) is not among the formats")
    assert "in vllm-project/vllm, vllm-project/vllm-torchtpu, google-pytorch/torch_tpu" in said.out
    assert "vllm-project/tpu-inference#1  Qwen3 stops [31m\n" in said.out
    assert [query.partition('"')[2].strip('"') for query in github.asked] == ["Qwen3ForCausalLM", "Qwen3", "gptq"]


def test_a_limit_is_said_with_what_was_not_asked_and_is_exit_4(github):
    github.limit = 1
    said = servecheck("issues", "--model", "Qwen/Qwen3-4B", "--repo", "vllm-project/tpu-inference", "--json")
    found = json.loads(said.out)
    assert (said.code, found["schema"], len(found["issues"])) == (4, "servecheck/issues/v1", 1)
    assert found["not_asked"][0].startswith("“Qwen3”: 127.0.0.1")
    assert found["try_again"] is not None


def test_an_export_asks_nobody(github, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(EXPORT))
    said = servecheck("issues", "--model", "Qwen/Qwen3-4B", "--from-file", "x.json", "--repo", "a/b")
    assert (said.code, github.asked) == (0, [])
    assert "a/b#7  Qwen3: wrong text" in said.out
    assert "c/d#9" not in said.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to look for"),
        (["--model", "x1y2", "--stack", "torchtpx"], "did you mean 'torchtpu'"),
        (["--model", "x1y2", "--engine", "vlm"], "did you mean 'vllm'"),
        (["--config", "none.json"], "No such file"),
        (["--model", "x1y2", "--repo", "vllm"], "OWNER/NAME"),
        (["--model", "x1y2", "--from-file", "none.json"], "No such file"),
    ],
)
def test_a_mistake_is_exit_2_and_nothing_is_asked(github, words, said):
    found = servecheck("issues", *words)
    assert (found.code, github.asked) == (2, [])
    assert said in found.err


def test_a_run_gives_its_rows_its_models_and_its_stacks(github):
    report = sample_runs.two_endpoints()
    assert failing_rows(report)[:2] == ("structured.json_schema", "structured.stream")
    found = find(Wanted(report=report), from_file=None, environ=os.environ)
    assert {"json_schema", "structured output", "include_usage", "top_p"} <= {term.text for term in found.terms}
    assert "vllm-project/vllm" in found.where
    assert "google-pytorch/torch_tpu" in found.where


def test_where_nothing_could_be_asked_nothing_is_said_to_be_known():
    asked = issues.Looked(not_asked=["“min_p”: no route to host"])
    said = issues.told((), asked, terms=(), where=("vllm-project/vllm",))
    assert "nothing could be asked" in said
    assert "--from-file" in said
    assert "no open issue fits" not in said
    asked.answered = True
    assert "no open issue fits, as far as it could be asked" in issues.told((), asked, terms=(), where=())
