"""View → ``report.html``: one file that asks for nothing outside itself; its one script only filters and opens.

The script is named in the page's policy by its hash, so that nothing else runs, whatever got past the escaping.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re

import jinja2
from markupsafe import Markup, escape

from servecheck.report import plots
from servecheck.report.figures import Figure
from servecheck.report.markdown import templates_dir
from servecheck.report.shapes import ExchangeView, ReportView
from servecheck.report.text import is_plain_url, issue_words, lay_out, shorten, visible

__all__ = ["report_html"]

BODY_LIMIT = 8_000
"""Bytes of a request or a reply; the middle of a longer one is left out."""

CURL_LIMIT = 100_000
"""Characters of a command; a longer one is made from ``run.jsonl``."""


def report_html(view: ReportView) -> str:
    """Return ``report.html``."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    # S704: both are ours, the one from a file of this package
    shown = {"script": Markup(script), "script_hash": Markup(digest)}  # noqa: S704
    return _environment().get_template("report.html.j2").render(v=view, **shown)


@functools.cache
def _script() -> str:
    return (templates_dir() / "parts" / "report.js").read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # by name, Jinja2 would not escape in *.html.j2
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        body=_body, command=_command, issue=issue_words, shaded=_shaded, shorten=shorten, spans=_spans, svg=_picture
    )
    environment.tests.update(link=is_plain_url)
    return environment


def _spans(words: str) -> Markup:
    """Return words with what stands between backticks as code; everything is escaped first."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(visible(words)))))  # noqa: S704


def _shaded(words: str) -> Markup:
    """Return words whose pale question marks are made dark enough for a light page; everything is escaped first."""
    shown = str(escape(visible(words)))
    return Markup(shown.replace("❔", '<span class="faint">❔</span>'))  # noqa: S704


def _picture(figure: Figure) -> Markup:
    return Markup(plots.inline(figure))  # noqa: S704 - made by us; its words are escaped where they are set


def _seen(value: object) -> object:
    """Write out what would not be seen: escaping alone lets controls and bidi overrides through."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _body(data: bytes) -> str:
    return lay_out(data, BODY_LIMIT)


def _command(exchange: ExchangeView) -> str:
    if len(exchange.curl) <= CURL_LIMIT:
        return exchange.curl
    return f"# {len(exchange.curl):,} characters: make it from exchange {exchange.id} in run.jsonl"
