r"""Untrusted text made fit to show: Markdown escaping, fences, cuts. It never changes what a reader may replay.

Everything a server, a model or a user's file said is untrusted. Characters that would not be seen, or that would be
acted upon, are written out (``\x1b``, ``\u202e``); nothing is dropped silently.
"""

from __future__ import annotations

import json
import re
import unicodedata
from urllib.parse import urlsplit, urlunsplit

__all__ = [
    "Md",
    "block",
    "cell",
    "cell_code",
    "code",
    "count",
    "cut_middle",
    "decode",
    "is_plain_url",
    "issue_words",
    "lay_out",
    "link",
    "prose",
    "public_url",
    "seconds",
    "sentence",
    "shorten",
    "size",
    "spans",
    "visible",
]

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories with no glyph: controls, bidi overrides, zero width, lone surrogates, private use."""

BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f")
"""Characters that have a category of letters or symbols and yet show as nothing."""

NEWLINE = "⏎"

_WORKFLOW = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
"""A line that a GitHub runner would take for a command (it trims first)."""

_SAFE_UNDERSCORE = re.compile(r"(?<=[0-9A-Za-z])_(?=[0-9A-Za-z])")
_ESCAPED = re.compile(r"[\\`*\[\]<>|~#_&]")
_LINE_START = re.compile(r"^(?:[-+=:]|\d+(?=[.)](?:\s|$)))")
_BRACKETED = re.compile(r"^([(\"']*)(.*?)([)\"',.;:]*)$")

_ACTED_UPON = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://            # a URL, whatever its scheme
    | \bwww\.                         # what GFM links without a scheme
    | [@＠]                           # mentions and mail addresses
    | [#!%&~$^](?=[\w"{$])            # issues, requests, milestones, epics, labels, mathematics
    | \b(?:GH|gh)-\d                  # GitHub's other way to name an issue
    | \$                              # mathematics, on either side
    | <(?=[a-z/!?])                   # a tag
    | :(?=[a-z0-9_+-]+:)              # a shortcode
    | ::                              # a workflow command
    | (?<![\w-])(?=[a-f]*\d)[0-9a-f]{7,40}(?![\w-]) # a commit
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What a forge turns into a link, a picture or a notification after Markdown is done, so that no backslash helps."""


class Md(str):
    """Markdown that may be printed as it is: only the functions of this module and the templates make it."""

    __slots__ = ()


def _written_out(character: str) -> str:
    point = ord(character)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def _seen(character: str) -> bool:
    if character in BLANKS or ord(character) & 0xFFFE == 0xFFFE:
        return False
    return unicodedata.category(character) not in INVISIBLE


def visible(text: str) -> str:
    """Write out what would not be seen or would drive a workflow; line ends become ``\\n`` and stay, tabs stay."""
    text = text.replace("\r\n", "\n")
    text = "".join(c if c in "\n\t" or _seen(c) else _written_out(c) for c in text)
    return _WORKFLOW.sub(r"\1\\x3a", text.replace("##[", "\\x23#["))


def _one_line(text: str) -> str:
    lines = [line.strip() for line in visible(text).replace("\t", " ").split("\n")]
    return f" {NEWLINE} ".join(line for line in lines if line)


def shorten(text: str, limit: int) -> str:
    """Cut to at most ``limit`` characters, at a word where one is near, and mark the cut with ``…``."""
    if len(text) <= limit:
        return text
    kept = text[: limit - 1]
    word = kept.rfind(" ")
    return (kept[:word] if word > limit * 2 // 3 else kept).rstrip() + "…"


def _span(text: str) -> str:
    runs = [len(run) for run in re.findall(r"`+", text)]
    fence = "`" * (1 + max(runs, default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _escape(word: str) -> str:
    kept = _SAFE_UNDERSCORE.sub("\0", word)
    return _ESCAPED.sub(lambda match: "\\" + match.group(), kept).replace("\0", "_")


def _words(text: str, *, table: bool) -> Md:
    """Escape word by word: a word that a forge would act upon becomes a code span, the others get backslashes."""
    shown = _escaped(_one_line(text), table=table)
    return Md(shown if table else _LINE_START.sub(_escape_start, shown))


def _escaped(line: str, *, table: bool) -> str:
    """Escape a line; a quotation is one piece, so that marks never begin or end in the middle of what a server said."""
    return "".join(
        _quotation(part, table=table) if part.startswith("“") else _plain_words(part, table=table)
        for part in re.split(r"(“[^”]*”?)", line)
    )


def _plain_words(text: str, *, table: bool) -> str:
    return "".join(_word(word, table=table) for word in re.split(r"( +)", text))


def _quotation(quoted: str, *, table: bool) -> str:
    inner = quoted.removeprefix("“").removesuffix("”")
    if not _ACTED_UPON.search(inner):
        return _plain_words(quoted, table=table)
    lead, said, trail = inner[: len(inner) - len(inner.lstrip())], inner.strip(), inner[len(inner.rstrip()) :]
    span = _span(said)
    shown = span.replace("|", "\\|") if table else span
    return f"“{lead}{shown}{trail}{quoted[1 + len(inner) :]}"


def _word(word: str, *, table: bool) -> str:
    if not _ACTED_UPON.search(word):
        return _escape(word)
    parted = _BRACKETED.match(word)
    before, inner, after = parted.groups() if parted and parted[2] else ("", word, "")
    span = _span(inner)
    return _escape(before) + (span.replace("|", "\\|") if table else span) + _escape(after)


def _escape_start(match: re.Match[str]) -> str:
    found = match.group()
    return f"\\{found}" if len(found) == 1 and not found.isdigit() else f"{found}\\"


def prose(text: str, limit: int = 600) -> Md:
    """Untrusted text inside a paragraph or a list item: one line, nothing in it is Markdown."""
    return _words(shorten(_one_line(text), limit), table=False)


def sentence(text: str, limit: int = 600) -> Md:
    """As :func:`prose`, and it ends with a full stop."""
    shown = shorten(_one_line(text), limit)
    return Md(_words(shown, table=False) + ("" if shown.endswith((".", "!", "?", "…")) else "."))


def spans(text: str, limit: int = 600, *, table: bool = False) -> Md:
    """Words of ours, such as a rule: as :func:`prose` or :func:`cell`, and what stands between backticks is code."""
    line = shorten(_one_line(text), limit)
    if "``" in line or line.count("`") % 2:
        return _words(line, table=table)
    parts = line.split("`")
    shown = [
        (_span(part).replace("|", "\\|") if table else _span(part)) if number % 2 else _escaped(part, table=table)
        for number, part in enumerate(parts)
    ]
    joined = "".join(shown)
    if "``" in joined:  # two spans would touch and become one
        return _words(line, table=table)
    return Md(joined if table else _LINE_START.sub(_escape_start, joined))


def cell(text: str, limit: int = 160) -> Md:
    """Untrusted text inside a table: as :func:`prose`, shorter, and no pipe ends the cell."""
    return _words(shorten(_one_line(text), limit), table=True)


def code(text: str, limit: int = 200) -> Md:
    """Untrusted text as a code span outside tables."""
    return Md(_span(shorten(_one_line(text), limit) or "(empty)"))


def cell_code(text: str, limit: int = 120) -> Md:
    """Untrusted text as a code span inside a table."""
    return Md(code(text, limit).replace("|", "\\|"))


def block(text: str, info: str = "") -> Md:
    """Untrusted text as a fenced block, its fence longer than any run of backticks inside; ``info`` is ours."""
    shown = visible(text).removesuffix("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return Md(f"{fence}{info}\n{shown}\n{fence}")


def cut_middle(data: bytes, limit: int) -> str:
    """Return bytes as text, at most ``limit`` of them: the middle is left out and the gap says how much.

    The cut falls between characters of UTF-8. Bytes that are not UTF-8 come out as ``\\xff``.
    """
    if len(data) <= limit:
        return decode(data)
    head, tail = limit * 2 // 3, len(data) - limit // 3
    while head > 0 and data[head] & 0xC0 == 0x80:
        head -= 1
    while tail < len(data) and data[tail] & 0xC0 == 0x80:
        tail += 1
    gap = f"… {size(tail - head)} left out …"
    return f"{decode(data[:head]).rstrip()}\n\n{gap}\n\n{decode(data[tail:]).lstrip()}"


def decode(data: bytes) -> str:
    """Return bytes as text; what is not UTF-8 comes out as ``\\xff``."""
    return data.decode("utf-8", errors="backslashreplace")


def lay_out(data: bytes, limit: int) -> str:
    """Return a body as text: JSON over several lines where it is short and nothing is lost by that, else as it came."""
    raw = decode(data)
    if "\n" not in raw and len(raw) > 100 and len(data) <= limit:
        try:
            return _laid_out(raw)
        except (ValueError, RecursionError):
            return raw
    return cut_middle(data, limit)


def _laid_out(raw: str) -> str:
    """Return JSON over several lines where dumping it gives the same text back, else as it is."""
    parsed = json.loads(raw)
    for separators in ((",", ":"), (", ", ": ")):
        for ascii_only in (False, True):
            if json.dumps(parsed, separators=separators, ensure_ascii=ascii_only) == raw:
                return _json(parsed, "", ascii_only=ascii_only)
    return raw


def _json(value: object, indent: str, *, ascii_only: bool) -> str:
    """Return JSON with whatever fits into 100 columns on one line."""
    flat = json.dumps(value, ensure_ascii=ascii_only)
    if len(indent) + len(flat) <= 100 or not value or not isinstance(value, (dict, list)):
        return flat
    inner = indent + "  "
    if isinstance(value, list):
        items = [inner + _json(item, inner, ascii_only=ascii_only) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    pairs = [
        f"{inner}{json.dumps(key, ensure_ascii=ascii_only)}: {_json(item, inner, ascii_only=ascii_only)}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"


def public_url(url: str) -> str:
    """Return a URL without what may be a secret: the user part is removed and query values are left out."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "(not a URL)"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    netloc = f"{host}:{port}" if port is not None else host
    query = "&".join(f"{pair.partition('=')[0]}=…" for pair in parts.query.split("&") if pair)
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def link(url: str, words: str) -> Md:
    """A link of ours to a page: only plain http(s) URLs become one, anything else is shown as code."""
    if is_plain_url(url):
        return Md(f"[{_words(words, table=False)}](<{url}>)")
    return code(url)


def is_plain_url(url: str) -> bool:
    """Return whether this is an http(s) URL made of ordinary characters, so that it can be a link anywhere."""
    return re.fullmatch(r"https?://[\w./?#=&%~+:,@!-]+", url, re.ASCII) is not None


def issue_words(issue: str) -> str:
    """Return how people say an issue (``vllm #1234`` without the sign, which forges act upon), else what was given.

    A file of a repository is ``vllm: envs.py``.
    """
    found = re.fullmatch(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)", issue, re.ASCII)
    file = re.fullmatch(r"https://github\.com/[\w.-]+/([\w.-]+)/blob/[\w./-]+/([\w.-]+)", issue, re.ASCII)
    if file is not None:
        return f"{file[1]}: {file[2]}"
    return f"{found[1]} {found[2]}" if found else issue


def count(number: int, one: str, many: str | None = None) -> str:
    """Return ``1 row`` or ``3,120 rows``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Return a number of bytes as ``3,120 bytes``."""
    return count(number, "byte")


def seconds(value: float | None) -> str:
    """Return seconds as ``16 ms``, ``5.4 s`` or ``24 min``, to about three figures; ``—`` where there is none."""
    if value is None:
        return "—"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 100:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value >= 120 else f"{value:.0f} s"
