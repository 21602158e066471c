"""Servers that enforce somebody's schema and not yours, and servers that only look odd doing it."""

from __future__ import annotations

import json

from servecheck.judging import HANGS_NOT, STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.constraint import Constraint
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import json_schema as nonce
from servecheck.reference.mutants import schema_keywords as shared
from servecheck.reference.rewriting import Rewriting, Rewritten
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


def _has_schema(body: Event) -> bool:
    return bool((body.get("response_format") or {}).get("json_schema"))


# --------------------------------------------------------------------------- broken


class ReferencesOpen(ReferenceServer):
    """Takes a ``$ref`` for permission: whatever it leads to may be anything."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Enforce the outer shape, and write the referred part as a text."""
        made = super().schema_constraint(schema, param)
        if '"$ref"' not in json.dumps(schema):
            return made
        return Rewritten(made, _lines_as_texts)


def _lines_as_texts(text: str) -> str:
    value = json.loads(text)
    return json.dumps({**value, "lines": ["a line" for _ in value["lines"]]})


class ObeysWhereUnopposed(Rewriting):
    """Puts the schema into the prompt and hopes: where the user asks for other JSON, the user wins."""

    def concerns(self, body: Event) -> bool:
        """Tell whether the user asks for JSON of his own."""
        return "exactly this JSON" in json.dumps(body["messages"])

    def change(self, text: str) -> str:
        """Do as the user says."""
        return json.dumps({**json.loads(text), "kind": "none of these"})


class RefusedUnnamed(ReferenceServer):
    """Refuses schemas with a pattern, without saying what it is about them."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Refuse."""
        if '"pattern"' in json.dumps(schema):
            raise ApiError("The provided JSON schema contains features not supported by the grammar.", param=param)
        return super().schema_constraint(schema, param)


class PatternRefused(ReferenceServer):
    """Refuses ``pattern`` by name."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Refuse it."""
        if '"pattern"' in json.dumps(schema):
            raise ApiError("Unimplemented keys: ['pattern']", param=param)
        return super().schema_constraint(schema, param)


class ReferencesFail(ReferenceServer):
    """Fails with a 500 on a schema with references."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Fail."""
        if '"$ref"' in json.dumps(schema):
            raise ApiError("maximum recursion depth exceeded", status=500, kind="InternalServerError")
        return super().schema_constraint(schema, param)


class SchemaKills(ReferenceServer):
    """Loses its engine to a schema with a pattern: 500 then, and for everybody afterwards."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Die of it."""
        body = self.body_of(request)
        if self.dead or '"pattern"' in json.dumps(body.get("response_format") or {}):
            self.dead = True
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


class EmptyUnderSchema(Rewriting):
    """Gives an empty answer where a schema is asked for, and says that it stopped."""

    def change(self, text: str) -> str:  # noqa: ARG002
        """Say nothing."""
        return ""


class Fenced(Rewriting):
    """Wraps the right JSON into a Markdown fence, as models do."""

    def change(self, text: str) -> str:
        """Put the fence around it."""
        return f"```json\n{text}\n```"


# --------------------------------------------------------------------------- odd, but right


class WhiteSpaceFirstTime(Rewriting):
    """Fills every greedy answer to a schema with white space until the limit; drawn ones end."""

    def concerns(self, body: Event) -> bool:
        """Greedy answers under a schema."""
        return body.get("temperature") == 0 and _has_schema(body)

    def change(self, text: str) -> str:
        """Go on behind the colon."""
        return text.partition(":")[0] + ":" + "\n" * 4000


class KeysInOtherOrder(Rewriting):
    """Writes the keys of an object backwards; JSON has no order."""

    def change(self, text: str) -> str:
        """Turn them round."""
        value = json.loads(text)
        return json.dumps(dict(reversed(value.items()))) if isinstance(value, dict) else text


class SmallContext(ReferenceServer):
    """Refuses prompts that are longer than its small context, and takes the schema with the others."""

    async def reply_chat(self, request: Request) -> Reply:
        """Refuse what is long."""
        if len(json.dumps(self.body_of(request)["messages"])) > 300:
            raise ApiError("This model's maximum context length is 64 tokens", param="messages")
        return await super().reply_chat(request)


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CHECK = "workload-schema-is-enforced"

MUTANTS = (
    Mutant(
        id="own-pattern-dropped", server=shared.PatternDropped, trips=((_CHECK, _V),), source="vllm-project/vllm#12201"
    ),
    Mutant(
        id="own-bounds-dropped", server=shared.BoundsDropped, trips=((_CHECK, _V),), source="vllm-project/vllm#12201"
    ),
    Mutant(id="own-references-open", server=ReferencesOpen, trips=((_CHECK, _V),)),
    Mutant(id="own-any-json", server=shared.AnyJson, trips=((_CHECK, _V),)),
    Mutant(id="own-obeys-where-unopposed", server=ObeysWhereUnopposed, trips=((_CHECK, _V),)),
    Mutant(id="own-schema-ignored", server=shared.AllIgnored, trips=((_CHECK, _N),), source="vllm-project/vllm#9900"),
    Mutant(id="own-schema-refused", server=shared.AllRefused, trips=((_CHECK, _R),)),
    Mutant(id="own-refused-unnamed", server=RefusedUnnamed, trips=((_CHECK, _R),)),
    Mutant(id="own-pattern-refused", server=PatternRefused, trips=((_CHECK, _R),)),
    Mutant(id="own-references-fail", server=ReferencesFail, trips=((_CHECK, _V),), source="vllm-project/vllm#35438"),
    Mutant(
        id="own-schema-kills",
        server=SchemaKills,
        trips=((STAYS_HEALTHY.id, _V),),
        source="vllm-project/tpu-inference#1850",
    ),
    Mutant(id="own-empty", server=EmptyUnderSchema, trips=((_CHECK, _V),)),
    Mutant(id="own-fenced", server=Fenced, trips=((_CHECK, _V),), source="vllm-project/vllm#9900"),
    Mutant(
        id="own-in-reasoning", server=nonce.JsonInReasoning, trips=((_CHECK, _V),), source="vllm-project/vllm#50948"
    ),
    Mutant(id="own-brace-doubled", server=nonce.BraceDoubled, trips=((_CHECK, _V),), source="vllm-project/vllm#44993"),
    Mutant(
        id="own-schema-hangs", server=nonce.SchemaHangs, trips=((HANGS_NOT.id, _V),), source="vllm-project/vllm#44269"
    ),
)

HARMLESS = (
    Harmless(id="own-spread-out", server=shared.SpreadOut),
    Harmless(id="own-letters-escaped", server=shared.LettersEscaped),
    Harmless(id="own-white-space-first-time", server=WhiteSpaceFirstTime),
    Harmless(id="own-keys-in-other-order", server=KeysInOtherOrder),
    Harmless(id="own-small-context", server=SmallContext),
    Harmless(id="own-long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
