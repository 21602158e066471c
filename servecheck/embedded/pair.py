"""The two engines that ``servecheck demo`` compares: one model, two honest configurations, real differences.

Nothing is injected. The candidate is what a serving team might change on a Monday: a cheaper cache, a template that
knows tools, no spare slot, no embeddings. Measured beforehand: repeating one configuration gives identical texts and
logprobs, so whatever differs comes from the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path

from servecheck.embedded.llamacpp import Config, Engine, start

__all__ = ["demo_pair", "running", "template"]


def template(name: str) -> str:
    """Return the text of a packaged chat template that knows tools.

    ``tools-fewshot`` shows the model tool calls it is to imitate; ``tools-bare-json`` asks for a bare JSON object, and
    the engine answers ``tool_choice: auto`` with HTTP 500 under it, which is a true finding about that pair.
    """
    return files("servecheck.embedded").joinpath(f"{name}.jinja").read_text(encoding="utf-8")


def demo_pair(model: Path) -> tuple[Config, Config]:
    """Return the reference and the candidate, both serving ``model``."""
    reference = Config(name="reference", model=model, slots=2, embeddings=True)
    candidate = Config(name="candidate", model=model, kv_cache="q4_0", chat_template=template("tools-fewshot"))
    return reference, candidate


@contextmanager
def running(configs: Iterable[Config]) -> Iterator[list[Engine]]:
    """Start engines one after another, and stop all of them whatever happens.

    Raises :class:`~servecheck.errors.EngineError` when one does not come up; those already up are stopped then too.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(start(config)) for config in configs]
