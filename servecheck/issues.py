"""Which open upstream issues touch a model's architecture or a row that fails: what to look for, where, and in which
order to read. Asks nobody itself; a hit is something to read, never a finding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from servecheck.errors import RateLimited, UpstreamError, UsageError
from servecheck.known_issues import builtins
from servecheck.model import Json

__all__ = [
    "Hit",
    "Issue",
    "Looked",
    "Term",
    "architecture_terms",
    "config_of",
    "from_api",
    "from_export",
    "look",
    "ranked",
    "row_terms",
    "told",
    "told_as_json",
    "valid_repository",
]

MOST_SEARCHES = 8
"""GitHub allows ten searches a minute without a token."""

_MOST_SHOWN = 20

_WORDS: tuple[tuple[str, str], ...] = (
    ("structured.legacy_guided", "guided_json"),
    ("structured.json_object", "json_object"),
    ("structured.json_schema", "json_schema"),
    ("structured.keywords", "json_schema"),
    ("structured.bad_schema", "json_schema"),
    ("structured.structural_tag", "structural_tag"),
    ("structured.*", "structured output"),
    ("sampling.stop_token_ids", "stop_token_ids"),
    ("sampling.*", "{last}"),
    ("tools.required", "tool_choice"),
    ("tools.named", "tool_choice"),
    ("tools.none", "tool_choice"),
    ("tools.*", "tool call"),
    ("reasoning.*", "reasoning"),
    ("streaming.usage", "include_usage"),
    ("streaming.continuous_usage", "continuous_usage_stats"),
    ("streaming.cancel", "disconnect"),
    ("streaming.*", "streaming"),
    ("logprobs.prompt", "prompt_logprobs"),
    ("logprobs.*", "logprobs"),
    ("prefix_cache.*", "prefix caching"),
    ("compile.*", "recompilation"),
    ("vision.*", "image"),
    ("audio.*", "transcription"),
    ("lora.*", "lora"),
    ("speculative.*", "speculative decoding"),
    ("embeddings.*", "embeddings"),
    ("rerank.*", "rerank"),
    ("responses.*", "/v1/responses"),
    ("messages.*", "/v1/messages"),
    ("completions.*", "/v1/completions"),
    ("metrics.*", "metrics"),
    ("health.*", "/health"),
    ("chat.max_tokens", "max_tokens"),
    ("chat.context_limit", "max_model_len"),
    ("chat.stop", "stop string"),
    ("quantization.*", "quantization"),
    ("parity.*", "accuracy"),
)
"""What people write of a row, first that fits; a row that nothing stands for is not searched."""

_ACTIVE = re.compile(r"-A\d+(\.\d+)?B(?![A-Za-z0-9])", re.IGNORECASE)
"""How the names of models of experts say how many parameters are active."""
_ENDS = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Words to look for, and why: an architecture, a format of weights, or a row. ``rows`` are those they stand for."""

    text: str
    kind: str
    rows: tuple[str, ...] = ()

    def is_in(self, text: str) -> bool:
        """Tell whether a text has these words as words: qwen3 is not in qwen3.5, and is in Qwen3-32B.

        Between words of one term may stand a space, a dash, a line or nothing: people write Qwen3-MoE and qwen3_moe.
        """
        words = "[ _-]?".join(map(re.escape, self.text.lower().split(" ")))
        return re.search(rf"(?<![a-z0-9]){words}(?![a-z0-9]|\.\d)", text.lower()) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An open issue, as a tracker shows it; ``body`` is only looked through."""

    repository: str
    number: int
    title: str
    url: str
    labels: tuple[str, ...] = ()
    updated: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An issue with what of it fits, and how well; ``known`` is what our own list says of it."""

    issue: Issue
    score: int
    because: tuple[str, ...]
    known: str = ""


@dataclass(slots=True)
class Looked:
    """What came of looking: issues with the terms that found them, and what could not be asked."""

    issues: dict[str, Issue] = field(default_factory=dict)
    found_by: dict[str, list[Term]] = field(default_factory=dict)
    not_asked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    again: datetime | None = None
    answered: bool = False

    def add(self, issue: Issue, term: Term) -> None:
        """Take an issue that a term found."""
        self.issues.setdefault(issue.url, issue)
        self.found_by.setdefault(issue.url, []).append(term)


# --------------------------------------------------------------------------- what to look for


def config_of(path: Path) -> dict[str, Any]:
    """Read a model's ``config.json``; a folder that holds one may be named. Raises :class:`UsageError`."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--config {file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config {file}: not JSON: {error}") from error
    if not isinstance(config, dict) or not ("architectures" in config or "model_type" in config):
        raise UsageError(f"--config {file}: no config.json of a model: it names no architectures and no model_type")
    return config


def architecture_terms(*, model: str | None = None, config: Mapping[str, Any] | None = None) -> tuple[Term, ...]:
    """Return what people call a model's architecture: its class, its family, its type; its name where no more is known.

    A ``config.json`` says it; a model's id is a guess at it.
    """
    found: list[str] = []
    if config is not None:
        named = config.get("architectures")
        for name in named if isinstance(named, list) else []:
            if isinstance(name, str) and name:
                base = _ENDS.sub("", name)
                found += [name, base, *([f"{base[:-3]} MoE"] if base.endswith(("Moe", "MoE")) else [])]
        kind = config.get("model_type")
        if isinstance(kind, str):
            found.append(kind)
    elif model:
        name = model.rstrip("/").rpartition("/")[2]
        family = re.match(r"[A-Za-z][A-Za-z-]*?[-_]?\d+(?:\.\d+)*(?![A-Za-z0-9])|[A-Za-z][A-Za-z-]*", name)
        if family:
            found += [f"{family[0].rstrip('-_')} MoE"] if _ACTIVE.search(name) else []
            found.append(family[0].rstrip("-_"))
        found.insert(0, name)
    kept: dict[str, str] = {}
    for text in found:
        if len(text) > 2:
            kept.setdefault(re.sub(r"[^a-z0-9. ]", "", text.lower()), text)
    return tuple(Term(text=text, kind="architecture") for text in kept.values())


def row_terms(rows: Iterable[str]) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """Return what people call rows that fail, rows with the same words together, and the rows without any."""
    by_words: dict[str, list[str]] = {}
    without = []
    for row in dict.fromkeys(rows):
        words = next((words for pattern, words in _WORDS if fnmatchcase(row, pattern)), None)
        if words is None:
            without.append(row)
        else:
            by_words.setdefault(words.replace("{last}", row.rpartition(".")[2]), []).append(row)
    terms = tuple(Term(text=words, kind="row", rows=tuple(mine)) for words, mine in by_words.items())
    return terms, tuple(without)


def valid_repository(text: str) -> str:
    """Return ``OWNER/NAME``, also where the address of the repository was given. Raises :class:`UsageError`."""
    name = re.sub(r"^https://github\.com/|(\.git|/)$", "", text.strip())
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[\w.-]{1,100}", name, re.ASCII):
        raise UsageError(f"--repo {text}: a repository is OWNER/NAME, as vllm-project/tpu-inference")
    return name


# --------------------------------------------------------------------------- where it comes from


def from_api(items: Iterable[Mapping[str, object]]) -> Iterator[Issue]:
    """Yield issues as GitHub's API shows them; pull requests, which it counts among them, are left out."""
    for item in items:
        url, title = item.get("html_url"), item.get("title")
        if "pull_request" in item or not isinstance(url, str) or not isinstance(title, str):
            continue
        yield Issue(
            repository=_repository(url),
            number=number if isinstance(number := item.get("number"), int) else 0,
            title=title,
            url=url,
            labels=_labels(item.get("labels")),
            updated=str(item.get("updated_at") or "")[:10],
            body=body if isinstance(body := item.get("body"), str) else "",
        )


def from_export(text: str, name: str) -> list[Issue]:
    """Return the open issues of an export by ``gh issue list --json number,title,url,body,labels,updatedAt,state``.

    What is missing is missing: ``title`` and ``url`` are needed. Raises :class:`UsageError`.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--from-file {name}: not JSON: {error}") from error
    asked = "gh issue list --state open --limit 1000 --json number,title,url,body,labels,updatedAt,state"
    if not isinstance(entries, list):
        raise UsageError(f"--from-file {name}: not a list of issues; make it with: {asked}")
    found = []
    for place, entry in enumerate(entries):
        url, title = (entry.get("url"), entry.get("title")) if isinstance(entry, dict) else (None, None)
        if not isinstance(url, str) or not isinstance(title, str):
            raise UsageError(f"--from-file {name}: entry {place + 1} has no url and title; make it with: {asked}")
        if str(entry.get("state") or "OPEN").upper() != "OPEN":
            continue
        found.append(
            Issue(
                repository=_repository(url),
                number=number if isinstance(number := entry.get("number"), int) else 0,
                title=title,
                url=url,
                labels=_labels(entry.get("labels")),
                updated=str(entry.get("updatedAt") or "")[:10],
                body=body if isinstance(body := entry.get("body"), str) else "",
            )
        )
    return found


def _repository(url: str) -> str:
    found = re.match(r"https?://[^/]+/([^/]+/[^/]+)/", url)
    return found[1] if found else ""


def _labels(value: object) -> tuple[str, ...]:
    names = [one.get("name") if isinstance(one, dict) else one for one in value] if isinstance(value, list) else []
    return tuple(name for name in names if isinstance(name, str))


Search = Callable[[str], Awaitable["tuple[Sequence[Mapping[str, object]], datetime | None, bool]"]]
"""Asks for a query; the items, the day from which they are where they were kept, and whether there was more."""


async def look(
    terms: Sequence[Term], repositories: Sequence[str], search: Search, refused: type[UpstreamError]
) -> Looked:
    """Search the open issues of repositories for every term, at most :data:`MOST_SEARCHES` times.

    A repository that is not shown to us makes GitHub refuse the query, which ``search`` raises as ``refused``: each is
    then asked by itself, and those that cannot be are named. A rate limit ends it; what was found until then is kept.
    """
    looked = Looked()
    wanted = [*repositories]
    asked = list(terms[:MOST_SEARCHES])
    for left in terms[MOST_SEARCHES:]:
        looked.not_asked.append(f"“{left.text}”: {MOST_SEARCHES} searches are made at most")
    for place, term in enumerate(asked):
        try:
            try:
                await _ask(looked, term, wanted, search)
            except refused:
                wanted = await _each(looked, term, wanted, search, refused)
        except RateLimited as limit:
            looked.again = limit.again
            looked.not_asked += [f"“{later.text}”: {limit}" for later in asked[place:]]
            return looked
        except UpstreamError as trouble:
            looked.not_asked.append(f"“{term.text}”: {trouble}")
        if not wanted:
            break
    return looked


async def _each(
    looked: Looked, term: Term, wanted: Sequence[str], search: Search, refused: type[UpstreamError]
) -> list[str]:
    """Ask every repository by itself, and return those that can be asked."""
    fine = []
    for repository in wanted:
        try:
            await _ask(looked, term, [repository], search)
        except refused as trouble:
            looked.not_asked.append(f"{repository}: {trouble}")
        else:
            fine.append(repository)
    return fine


async def _ask(looked: Looked, term: Term, repositories: Sequence[str], search: Search) -> None:
    where = " ".join(f"repo:{repository}" for repository in repositories)
    words = term.text.replace('"', " ")
    items, kept, cut = await search(f'{where} is:issue is:open in:title,body "{words}"')
    looked.answered = True
    for issue in from_api(items):
        looked.add(issue, term)
    if kept is not None:
        looked.notes.append(f"“{term.text}”: as of {kept:%Y-%m-%d %H:%M} UTC, from the cache")
    if cut:
        looked.notes.append(f"“{term.text}”: there are more than are shown")


# --------------------------------------------------------------------------- in which order to read


def ranked(
    issues: Iterable[Issue], terms: Sequence[Term], found_by: Mapping[str, Sequence[Term]] | None = None
) -> tuple[Hit, ...]:
    """Return the issues that fit, the likeliest first: what the title says weighs more than the text, an architecture
    more than a row, and both together most. Of equals, the one that was touched last comes first.
    """
    references = {one.reference: one.title for one in builtins()}
    hits = []
    for issue in issues:
        score, because, kinds = 0, [], set()
        for term in terms:
            heading = term.is_in(" ".join((issue.title, *issue.labels)))
            if not heading and not term.is_in(issue.body) and term not in (found_by or {}).get(issue.url, ()):
                continue
            kinds.add(term.kind)
            score += (4 if heading else 1) * (2 if term.kind == "architecture" else 1)
            because.append(_because(term, heading=heading))
        if not because:
            continue
        if {"architecture", "row"} <= kinds:
            score += 6
        hits.append(Hit(issue=issue, score=score, because=tuple(because), known=references.get(issue.url, "")))
    by_day = sorted(hits, key=lambda hit: hit.issue.updated, reverse=True)
    return tuple(sorted(by_day, key=lambda hit: -hit.score))


def _because(term: Term, *, heading: bool) -> str:
    rows = f" ({', '.join(term.rows[:3])}{', …' if len(term.rows) > 3 else ''})" if term.rows else ""
    return f"{term.text}{rows} {'in the title' if heading else 'in the text'}"


# --------------------------------------------------------------------------- what is said


def told(
    hits: Sequence[Hit], looked: Looked, *, terms: Sequence[Term], where: Sequence[str], warnings: Sequence[str] = ()
) -> str:
    """Return the text for a terminal: warnings, the issues, and what was not asked."""
    lines = [f"before any request: {one}" for one in warnings]
    words = ", ".join(f"“{term.text}”" for term in terms) or "nothing"
    lines.append(f"looked for {words} in {', '.join(where) or 'no repository'}")
    for hit in hits[:_MOST_SHOWN]:
        issue = hit.issue
        updated = f", last touched {issue.updated}" if issue.updated else ""
        lines.append(f"\n{issue.repository}#{issue.number}  {_line(issue.title)}")
        lines.append(f"  {_line(issue.url)}{updated}")
        lines.append(f"  {_line('; '.join(hit.because))}")
        if hit.known:
            lines.append(f"  known here: {hit.known}")
    if not hits and looked.not_asked and not looked.answered:
        lines.append("\nnothing could be asked, so nothing is known; without a network, --from-file reads an export")
    elif not hits:
        lines.append("\nno open issue fits" + (", as far as it could be asked" if looked.not_asked else ""))
    elif len(hits) > _MOST_SHOWN:
        lines.append(f"\n{len(hits) - _MOST_SHOWN} more fit less; --json has them all")
    notes = [*(f"not asked: {one}" for one in looked.not_asked), *looked.notes]
    return "\n".join([*lines, *([""] if notes else []), *(_line(note) for note in notes)])


def _line(text: str) -> str:
    """Return one line of other people's text without what a terminal would act upon."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def told_as_json(
    hits: Sequence[Hit], looked: Looked, *, terms: Sequence[Term], where: Sequence[str], warnings: Sequence[str] = ()
) -> dict[str, Json]:
    """Return the same as JSON, with all hits; the shape is ``servecheck/issues/v1``."""
    return {
        "schema": "servecheck/issues/v1",
        "repositories": [*where],
        "terms": [{"text": term.text, "kind": term.kind, "rows": [*term.rows]} for term in terms],
        "warnings": [*warnings],
        "issues": [
            {
                "repository": hit.issue.repository,
                "number": hit.issue.number,
                "title": hit.issue.title,
                "url": hit.issue.url,
                "labels": [*hit.issue.labels],
                "updated": hit.issue.updated or None,
                "score": hit.score,
                "because": [*hit.because],
                "known": hit.known or None,
            }
            for hit in hits
        ],
        "not_asked": [*looked.not_asked],
        "notes": [*looked.notes],
        "try_again": looked.again.isoformat() if looked.again is not None else None,
    }
