"""Servers that drop what their grammar compiler does not know, and one that an innocent schema breaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.constraint import AnyObject, Choices, Constraint
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.rewriting import Rewriting
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class _Dropping(ReferenceServer):
    """Takes keywords out of every schema before it is compiled."""

    dropped: ClassVar[frozenset[str]] = frozenset()

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Drop them."""
        return super().schema_constraint(_without(schema, self.dropped), param)


def _without(schema: Any, dropped: Sequence[str] | frozenset[str]) -> Any:  # noqa: ANN401
    if isinstance(schema, list):
        return [_without(item, dropped) for item in schema]
    if isinstance(schema, dict):
        return {key: _without(value, dropped) for key, value in schema.items() if key not in dropped}
    return schema


# --------------------------------------------------------------------------- broken


class BoundsDropped(_Dropping):
    """Drops the bounds of arrays and numbers without a word: a list of exactly so many items has any number."""

    dropped = frozenset({"minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


class PatternDropped(_Dropping):
    """Drops patterns and formats: any string will do."""

    dropped = frozenset({"pattern", "format"})


class ConstDropped(_Dropping):
    """Knows no ``const`` and takes it for a note."""

    dropped = frozenset({"const"})


class RareOnesDropped(_Dropping):
    """Drops what it does not know outside the usual subset, where others refuse."""

    dropped = frozenset({"uniqueItems", "contains", "minLength", "maxLength"})


class MultiplesRefused(ReferenceServer):
    """Refuses ``multipleOf`` by name."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Refuse it."""
        if "multipleOf" in json.dumps(schema):
            raise ApiError(f"{param}: unsupported schema keyword 'multipleOf'", param=param)
        return super().schema_constraint(schema, param)


class AllIgnored(ReferenceServer):
    """Builds no grammar from any schema."""

    def constraint_of(self, _: Event) -> Constraint | None:
        """Forget the constraint."""
        return None


class AnyJson(ReferenceServer):
    """Takes a schema for JSON mode."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:  # noqa: ARG002
        """Take any object."""
        return AnyObject()


class AllRefused(ReferenceServer):
    """Has no structured output and says so."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("response_format is not supported", param="response_format")
        return None


class RecursionFails(ReferenceServer):
    """Follows references without end and fails with a 500."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Fail on definitions that refer to themselves."""
        if '"#/$defs/node"' in json.dumps(schema):
            raise ApiError("maximum recursion depth exceeded", status=500, kind="InternalServerError")
        return super().schema_constraint(schema, param)


class FirstSchemaChoosesForAll(ReferenceServer):
    """Chooses its grammar back end by the first structured request, and that for ``multipleOf`` cannot call tools."""

    backend = ""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Choose once."""
        constraint = super().constraint_of(body)
        if constraint is not None and not self.backend:
            self.backend = "other" if "multipleOf" in json.dumps(body) else "usual"
        return constraint

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Constraint:
        """Fail in the other one."""
        if self.backend == "other":
            raise ApiError("Internal server error", status=500, kind="InternalServerError")
        self.backend = "usual"
        return super().calls_constraint(toolbox, asked)


class LengthsDroppedBesideAPattern(ReferenceServer):
    """Compiles a string's pattern and never comes to its lengths."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Drop the lengths."""
        return super().schema_constraint(_pattern_alone(schema), param)


def _pattern_alone(schema: Any) -> Any:  # noqa: ANN401
    if isinstance(schema, dict) and "pattern" in schema:
        return {key: value for key, value in schema.items() if key not in ("minLength", "maxLength")}
    if isinstance(schema, dict):
        return {key: _pattern_alone(value) for key, value in schema.items()}
    return schema


# --------------------------------------------------------------------------- odd, but right


class SpreadOut(Rewriting):
    """Writes the JSON over several lines."""

    def change(self, text: str) -> str:
        """Indent it."""
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


class LettersEscaped(Rewriting):
    """Writes everything beyond ASCII as escapes."""

    def change(self, text: str) -> str:
        """Escape it."""
        return json.dumps(json.loads(text))


class WhiteSpaceToTheEnd(Rewriting):
    """Fills a greedy answer to a schema with bounds with white space until the limit; drawn ones end."""

    def concerns(self, body: Event) -> bool:
        """Greedy answers between bounds."""
        return body.get("temperature") == 0 and "minimum" in json.dumps(body.get("response_format", {}))

    def change(self, text: str) -> str:
        """Go on behind the colon."""
        return text.partition(":")[0] + ":" + "\n" * 2000


class RareOnesEnforced(ReferenceServer):
    """Enforces keywords that others refuse."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Write what they allow."""
        inner = schema["properties"]["code"] if isinstance(schema, dict) and "properties" in schema else {}
        if "uniqueItems" in inner:
            return Choices(('{"code": ["ha", "ho", "he", "hi"]}',))
        if "contains" in inner:
            return Choices((json.dumps({"code": ["sea", inner["contains"]["const"]]}),))
        return super().schema_constraint(schema, param)


class NoTools(ReferenceServer):
    """Was started without a tool parser, and refuses tools by name."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if body.get("tools"):
            raise ApiError("tools need --enable-auto-tool-choice and --tool-call-parser", param="tools")
        return super().tools_of(body)


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_KEPT, _ENFORCED = "documented-keywords-are-not-dropped", "documented-keywords-are-enforced"
_OTHERS, _TOOLS = "other-keywords-are-not-dropped", "tool-calls-work-after-schemas"

MUTANTS = (
    Mutant(id="bounds-dropped", server=BoundsDropped, trips=((_KEPT, _N),), source="vllm-project/vllm#12201"),
    Mutant(id="pattern-dropped", server=PatternDropped, trips=((_KEPT, _N),)),
    Mutant(id="const-dropped", server=ConstDropped, trips=((_KEPT, _N),)),
    Mutant(
        id="rare-ones-dropped",
        server=RareOnesDropped,
        trips=((_KEPT, _H), (_OTHERS, _N)),
        source="vllm-project/vllm#12201",
    ),
    Mutant(id="multiples-refused", server=MultiplesRefused, trips=((_KEPT, _H), (_ENFORCED, _R))),
    Mutant(id="all-ignored", server=AllIgnored, trips=((_KEPT, _N),), source="vllm-project/vllm#9900"),
    Mutant(id="any-json", server=AnyJson, trips=((_KEPT, _N),)),
    Mutant(id="all-refused", server=AllRefused, trips=((_KEPT, _R),)),
    Mutant(id="recursion-fails", server=RecursionFails, trips=((_KEPT, _V),), source="vllm-project/vllm#35438"),
    Mutant(
        id="first-schema-chooses-for-all",
        server=FirstSchemaChoosesForAll,
        trips=((_KEPT, _H), (_TOOLS, _V)),
        source="vllm-project/vllm#55152",
    ),
    Mutant(
        id="lengths-dropped-beside-a-pattern",
        server=LengthsDroppedBesideAPattern,
        trips=(("other-keywords-are-not-dropped", Outcome.NO_EFFECT),),
        source="mlc-ai/xgrammar#895",
    ),
)

HARMLESS = (
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(id="letters-escaped", server=LettersEscaped),
    Harmless(id="white-space-to-the-end", server=WhiteSpaceToTheEnd),
    Harmless(id="rare-ones-enforced", server=RareOnesEnforced),
    Harmless(id="no-tools", server=NoTools),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
