"""Servers that take a JSON Schema and do something else with it, and servers whose right answers only look odd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from servecheck.judging import HANGS_NOT, STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer, Tally
from servecheck.reference.constraint import AnyObject, Constraint
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.rewriting import Rewriting, Rewritten
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


def _asks_for_schema(body: Event) -> bool:
    return "response_format" in body


# --------------------------------------------------------------------------- broken


class SchemaIgnored(ReferenceServer):
    """Accepts the schema, builds no grammar from it, and answers with prose."""

    def constraint_of(self, _: Event) -> Constraint | None:
        """Forget the constraint."""
        return None


class SchemaInFence(Rewriting):
    """Only asks the model for JSON in its prompt, so the answer comes in a Markdown fence."""

    def change(self, text: str) -> str:
        """Put the fence around it."""
        return f"```json\n{text}\n```"


class FencedJsonOfItsOwn(ReferenceServer):
    """Builds no grammar and asks for JSON in the prompt: a fenced object that has nothing to do with the schema."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Let the model write any object."""
        constraint = super().constraint_of(body)
        return Rewritten(AnyObject(), lambda text: f"```json\n{text}\n```") if constraint else None


class EnumDropped(ReferenceServer):
    """Drops the keywords that its grammar compiler does not know: the keys are the schema's, the values are free."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Take every ``enum`` out."""
        return super().schema_constraint(_without(schema, "enum"), param)


def _without(schema: Any, keyword: str) -> Any:  # noqa: ANN401
    if isinstance(schema, list):
        return [_without(item, keyword) for item in schema]
    if isinstance(schema, dict):
        return {key: _without(value, keyword) for key, value in schema.items() if key != keyword}
    return schema


class AnyJson(ReferenceServer):
    """Takes ``json_schema`` for ``json_object``: JSON it is, and never the schema's."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Check the schema and do not use it."""
        super().schema_constraint(schema, param)
        return AnyObject()


class ThoughtMarkLeaks(Rewriting):
    """Leaves the mark that ends a thought in front of the JSON."""

    def change(self, text: str) -> str:
        """Put the mark in front."""
        return f"</think>\n\n{text}"


class BraceDoubled(Rewriting):
    """Advances the grammar and the tokens out of step, so that the opening brace comes twice."""

    def change(self, text: str) -> str:
        """Double the first sign."""
        return text[0] + text


class KeysByTheAlphabet(ReferenceServer):
    """Sorts the properties of a schema before it builds the grammar, as a map without an order does."""

    def schema_constraint(self, schema: object, param: str) -> Constraint:
        """Sort them."""
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(schema, dict) and isinstance(properties, dict):
            schema = {**schema, "properties": dict(sorted(properties.items()))}
        return super().schema_constraint(schema, param)


class SampledRowsUnmasked(ReferenceServer):
    """Applies the mask to the greedy rows of a batch only, so sampled answers are free."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the constraint of a sampled request."""
        constraint = super().constraint_of(body)
        return constraint if body.get("temperature") == 0 else None


class BareIgnored(ReferenceServer):
    """Reads the schema together with the sampling parameters, and not at all where there are none."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Forget the constraint of a request that says nothing of sampling."""
        constraint = super().constraint_of(body)
        return constraint if "temperature" in body else None


class CutAndStop(ReferenceServer):
    """Stops in the middle of the JSON, at a limit of its own, and calls that ``stop``."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Cut the text of a constrained answer."""
        if job.constraint is not None:
            for answer in answers:
                answer.content = answer.content[: len(answer.content) // 2]
        return super().completion(job, answers)


class JsonInReasoning(ReferenceServer):
    """Files the whole JSON under reasoning and leaves the content empty."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Move the content of a constrained answer."""
        if job.constraint is not None:
            answer.content, answer.reasoning = "", answer.content
        return super().chat_choice(job, answer)


class NeverStops(Rewriting):
    """Does not end the answer where the JSON ends: prose follows it."""

    def change(self, text: str) -> str:
        """Go on."""
        return f"{text} And that is the story of the sea."


class WrappedInName(Rewriting):
    """Wraps the answer in an object of the schema's name."""

    def change(self, text: str) -> str:
        """Wrap it."""
        return f'{{"answer": {text}}}'


class QuotedJson(Rewriting):
    """Writes the JSON as a JSON string, so that a client must parse it twice."""

    def change(self, text: str) -> str:
        """Quote it."""
        return json.dumps(text)


class EmptyAnswer(Rewriting):
    """Lets the grammar end before it has begun: a constrained answer is empty."""

    def change(self, _: str) -> str:
        """Say nothing."""
        return ""


class SchemaRefused(ReferenceServer):
    """Was started without a grammar backend and says so with a 400."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if _asks_for_schema(body):
            raise ApiError("response_format json_schema is not supported by this server", param="response_format")
        return super().constraint_of(body)


class SchemaNotImplemented(ReferenceServer):
    """Says with a 501 in a flat error body that structured output is not there yet."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse as not implemented."""
        if _asks_for_schema(body):
            raise ApiError("structured output is not implemented on this device", status=501)
        return super().constraint_of(body)

    def error_body(self, wrong: ApiError) -> Event:
        """Return the flat error shape."""
        return {"object": "error", "message": wrong.message, "type": wrong.kind, "code": wrong.status}


class SchemaFails(ReferenceServer):
    """Fails inside with a 500 and an empty message when it compiles the schema, and goes on serving others."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Fail."""
        if _asks_for_schema(body):
            raise ApiError("", status=500, kind="InternalServerError")
        return super().constraint_of(body)


class SchemaHangs(ReferenceServer):
    """Never sends a byte for a request with a schema, while other requests work."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait for ever."""
        if _asks_for_schema(self.body_of(request)):
            await asyncio.Event().wait()
        return await super().reply_chat(request)


class SchemaKills(ReferenceServer):
    """Loses its engine to the first request with a schema: 500 then, and for everybody afterwards."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Die of it."""
        asked = self.body_of(request).get("response_format")
        self.dead = self.dead or (isinstance(asked, dict) and asked.get("type") == "json_schema")
        if self.dead:
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        return await super().reply_chat(request)


class BlanksWithoutEnd(Rewriting):
    """Lets white space through without bound, so that a model writes nothing else until it is cut."""

    def change(self, text: str) -> str:
        """Never come to the first key."""
        return text[:1] + "\n  " * 3000 + text[1:]


# --------------------------------------------------------------------------- odd, but right


class SpreadOut(Rewriting):
    """Writes the JSON over several lines with indents."""

    def change(self, text: str) -> str:
        """Indent it."""
        return json.dumps(json.loads(text), indent=2)


class LeadingNewline(Rewriting):
    """Begins with an empty line and ends with one; JSON allows white space around it."""

    def change(self, text: str) -> str:
        """Put white space around it."""
        return f"\n\n{text}\n"


class EscapedLetters(Rewriting):
    """Writes each string's first letter as a ``\\u`` escape, which is the same string."""

    def change(self, text: str) -> str:
        """Escape what follows an opening quotation mark."""
        parts = text.split('"')
        parts[1::2] = [f"\\u{ord(part[0]):04x}{part[1:]}" for part in parts[1::2]]
        return '"'.join(parts)


class NoSpaces(Rewriting):
    """Writes the JSON without any white space."""

    def change(self, text: str) -> str:
        """Close it up."""
        return json.dumps(json.loads(text), separators=(",", ":"))


class SlowFirstUse(ReferenceServer):
    """Compiles a grammar for twenty seconds before it answers."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before a constrained answer."""
        if _asks_for_schema(self.body_of(request)):
            await asyncio.sleep(20)
        return await super().reply_chat(request)


class ThinkingOff(ReferenceServer):
    """Begins the grammar with the first token, so that a thinking model does not think; the JSON is right."""

    def chat_job(self, body: Event) -> Job:
        """Take the thought out of a constrained request."""
        job = super().chat_job(body)
        return replace(job, thinking=False) if job.constraint is not None else job


class OtherReasoningField(ReferenceServer):
    """Calls the field of the thought ``reasoning`` and gives it always, also where it is null."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Rename the field."""
        choice = super().chat_choice(job, answer)
        choice["message"]["reasoning"] = choice["message"].pop("reasoning_content", None)
        return choice


class ExtraFields(ReferenceServer):
    """Adds fields that the specification does not know, and leaves out the ones it calls optional."""

    def completion(self, job: Job, answers: Sequence[Answer]) -> Event:
        """Dress the reply differently."""
        reply = super().completion(job, answers)
        reply |= {"provider": "somebody", "timings": {"predicted_ms": 1.5}, "service_tier": None}
        del reply["system_fingerprint"]
        reply["choices"][0]["message"] |= {"annotations": None, "audio": None, "tool_calls": []}
        return reply

    def usage(self, job: Job, tally: Tally) -> Event:
        """Report the three counts and nothing else."""
        return {name: value for name, value in super().usage(job, tally).items() if name.endswith("_tokens")}


class InPieces(ReferenceServer):
    """Sends the body in pieces of five bytes."""

    async def reply_chat(self, request: Request) -> Reply:
        """Cut the bytes."""
        reply = await super().reply_chat(request)
        assert isinstance(reply.body, bytes)
        return replace(reply, body=_pieces(reply.body))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 5):
        yield body[start : start + 5]


class KeptAlive(ReferenceServer):
    """Sends spaces while it works, so that proxies do not give up, and then the JSON body."""

    async def reply_chat(self, request: Request) -> Reply:
        """Send white space first."""
        reply = await super().reply_chat(request)
        assert isinstance(reply.body, bytes)
        return replace(reply, body=_late(reply.body))


async def _late(body: bytes) -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b" "
        await asyncio.sleep(5)
    yield body


class FlatRefusals(ReferenceServer):
    """Refuses in another legal error family, and a request to an unknown route with plain text."""

    def error(self, wrong: ApiError, request: Request) -> Reply:
        """Write the error differently."""
        if wrong.status == 404:
            return Reply(status=404, headers=(("content-type", "text/plain"),), body=b"404 page not found")
        return super().error(wrong, request)

    def error_body(self, wrong: ApiError) -> Event:
        """Return ``detail``, as one web framework does."""
        return {"detail": [{"msg": wrong.message, "loc": ["body", wrong.param]}]}

    async def reply_version(self, _: Request) -> Reply:
        """Have no version route."""
        return json_reply({"detail": "Not Found"}, 404)


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_GREEDY, _SAMPLED, _BARE = "schema-shapes-the-answer", "schema-shapes-a-sampled-answer", "schema-alone-is-enough"


def _all(outcome: Outcome) -> tuple[tuple[str, Outcome], ...]:
    return ((_GREEDY, outcome), (_SAMPLED, outcome), (_BARE, outcome))


MUTANTS = (
    Mutant(id="schema-ignored", server=SchemaIgnored, trips=_all(_N), source="vllm-project/vllm#11855"),
    Mutant(id="schema-in-fence", server=SchemaInFence, trips=_all(_V), source="vllm-project/vllm#9900"),
    Mutant(id="fenced-json-of-its-own", server=FencedJsonOfItsOwn, trips=_all(_V), source="vllm-project/vllm#9900"),
    Mutant(id="enum-dropped", server=EnumDropped, trips=_all(_V), source="vllm-project/vllm#12201"),
    Mutant(id="any-json", server=AnyJson, trips=_all(_V)),
    Mutant(
        id="keys-by-the-alphabet",
        server=KeysByTheAlphabet,
        trips=(("keys-come-in-the-order-of-the-schema", _V),),
        source="ollama/ollama#7978",
    ),
    Mutant(id="thought-mark-leaks", server=ThoughtMarkLeaks, trips=_all(_V), source="sgl-project/sglang#6441"),
    Mutant(id="brace-doubled", server=BraceDoubled, trips=_all(_V), source="vllm-project/vllm#44993"),
    Mutant(
        id="sampled-rows-unmasked",
        server=SampledRowsUnmasked,
        trips=((_GREEDY, Outcome.HELD), (_SAMPLED, _N), (_BARE, _N)),
        source="vllm-project/vllm#19493",
    ),
    Mutant(
        id="bare-ignored", server=BareIgnored, trips=((_GREEDY, Outcome.HELD), (_SAMPLED, Outcome.HELD), (_BARE, _N))
    ),
    Mutant(id="cut-and-stop", server=CutAndStop, trips=_all(_V), source="ikawrakow/ik_llama.cpp#2321"),
    Mutant(id="json-in-reasoning", server=JsonInReasoning, trips=_all(_V), source="vllm-project/vllm#50948"),
    Mutant(id="never-stops", server=NeverStops, trips=_all(_V)),
    Mutant(id="wrapped-in-name", server=WrappedInName, trips=_all(_V)),
    Mutant(id="quoted-json", server=QuotedJson, trips=_all(_V)),
    Mutant(id="empty-answer", server=EmptyAnswer, trips=_all(_V)),
    Mutant(id="schema-refused", server=SchemaRefused, trips=_all(_R)),
    Mutant(id="schema-not-implemented", server=SchemaNotImplemented, trips=_all(_R)),
    Mutant(id="schema-fails", server=SchemaFails, trips=_all(_V), source="vllm-project/vllm#35438"),
    Mutant(id="schema-hangs", server=SchemaHangs, trips=((HANGS_NOT.id, _V),), source="vllm-project/vllm#44269"),
    Mutant(
        id="schema-kills",
        server=SchemaKills,
        trips=((STAYS_HEALTHY.id, _V),),
        source="vllm-project/tpu-inference#1850",
    ),
    Mutant(
        id="blanks-without-end",
        server=BlanksWithoutEnd,
        trips=(("white-space-comes-to-an-end-under-a-schema", _V),),
        source="vllm-project/vllm#38696",
    ),
)

HARMLESS = (
    Harmless(id="spread-out", server=SpreadOut),
    Harmless(id="leading-newline", server=LeadingNewline),
    Harmless(id="escaped-letters", server=EscapedLetters),
    Harmless(id="no-spaces", server=NoSpaces),
    Harmless(id="slow-first-use", server=SlowFirstUse),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
    Harmless(id="thinking-off", server=ThinkingOff, source="vllm-project/vllm#47027"),
    Harmless(id="other-reasoning-field", server=OtherReasoningField, source="vllm-project/vllm#50624"),
    Harmless(id="extra-fields", server=ExtraFields),
    Harmless(id="in-pieces", server=InPieces),
    Harmless(id="kept-alive", server=KeptAlive),
    Harmless(id="flat-refusals", server=FlatRefusals, source="vllm-project/vllm#12886"),
)
