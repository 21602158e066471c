"""A schema or grammar that nothing can fit is refused by name, without harm to the server.

What it does: asks for an answer under a good schema, then under bad ones: a type that does not exist, an empty enum,
bounds that contradict each other, a reference to nowhere, no schema at all, and a pattern that is no regular
expression; plain and streamed. A plain request follows each. Then a grammar that ends too early, in the dialect that
works here, and the good schema once more.

Why it matters: applications build schemas by program, and sooner or later one is wrong. A 4xx with words is repaired in
minutes; a 500 is repeated by every client, a hang takes a slot, and an engine that dies takes everybody along.

How it could be fooled: by a gateway that validates schemas itself, so that the engine never sees them. A refusal inside
a stream that began with 200 is legal: the engine checks the schema after the headers are out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Outcome, Transcript
from servecheck.probe import Cost, Params, Probe, Session
from servecheck.probes._dialects import Dialect, dialects, word_in, word_of
from servecheck.probes._findings import Part
from servecheck.probes._schemas import (
    NONCE_SCHEMA,
    PULL_AWAY,
    judge_schema,
    latest,
    more_room,
    response_format,
    thought,
    with_nonce,
)
from servecheck.probes._steps import reply_at
from servecheck.probes.bad_requests import refusal
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_ANSWERED, _REFUSED, _NAMED = "bad-schema-gets-a-reply", "bad-schema-is-refused", "schema-refusal-has-a-message"
_CARELESS, _GRAMMAR = "careless-schema-is-refused", "bad-grammar-is-refused"
_SERVED, _WORKS = "server-serves-after-a-bad-schema", "good-schema-works-after-bad-ones"
_SOURCE = "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"
_LESSER = ("pattern", "no schema")  # what a lenient reader can make something of; impossible schemas are no such thing
_VALUES: dict[str, Json] = {
    "unknown type": {"type": "nonsense"},
    "empty enum": {"enum": []},
    "contradiction": {"type": "integer", "minimum": 5, "maximum": 3},
    "reference to nowhere": {"$ref": "#/$defs/nowhere"},
    "pattern": {"type": "string", "pattern": "(["},
}
_BAD_GRAMMAR = "root ::= "
_SMALL = 8
_SOME = ("unknown type", "contradiction")


class BadSchemasParams(Params):
    """What may be chosen in YAML."""

    prompt: str = Field(default=PULL_AWAY, description="A prompt that pulls away from JSON.")
    good_after: Literal["each", "last"] = Field(
        default="each", description="Whether a good request follows each bad one, or the last of each mode."
    )
    streamed: Literal["all", "some"] = Field(
        default="all",
        description="Whether all bad schemas are streamed too, or one that cannot be read and one that can.",
    )
    grammar: bool = Field(default=True, description="Whether a bad grammar is tried too.")
    max_tokens: int = Field(default=96, ge=16, le=4096, description="Room for an answer under the good schema.")


def _bad_formats() -> dict[str, Json]:
    """Return the ``response_format`` of each bad schema, by what is wrong with it."""
    made: dict[str, Json] = {}
    for name, value in _VALUES.items():
        schema: Json = {
            "type": "object",
            "properties": {"code": value},
            "required": ["code"],
            "additionalProperties": False,
        }
        made[name] = response_format(schema)
    made["no schema"] = {"type": "json_schema", "schema": {"type": "object"}}
    return made


async def drive(session: Session, params: BadSchemasParams, _: Transcript | None) -> None:
    """Control and a good schema; each bad one with a plain request behind it; a bad grammar; the good schema again."""
    messages: Json = [{"role": "user", "content": params.prompt}]
    base: dict[str, Json] = {"messages": messages, "max_tokens": params.max_tokens, "temperature": 0, "top_p": 1}
    plain: dict[str, Json] = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": _SMALL}
    await session.chat("control", base)
    await _good(session, base, "good")
    if not isinstance(_look(session.transcript, "good"), reply.Answer):
        return  # nothing is learnt of bad schemas where good ones are refused, and an odd first request may do harm
    for mode, more in (("plain", {}), ("stream", {"stream": True})):
        formats = _bad_formats()
        if mode == "stream" and params.streamed == "some":
            formats = {name: formats[name] for name in _SOME}
        for name, wanted in formats.items():
            await session.chat(f"{mode}/{name}", {**base, **more, "max_tokens": 64, "response_format": wanted})
            if params.good_after == "each" or name == list(formats)[-1]:
                await session.chat(f"after/{mode}/{name}", {**plain, "temperature": 0})
    for dialect in dialects("grammar", session.fingerprint) if params.grammar else ():
        fields = dialect.fields(word_of(session.nonce(10)))
        await session.chat(f"good-grammar/{dialect.name}", {**base, **fields})
        if _dialect_works(session.transcript, dialect):
            await session.chat(f"grammar/{dialect.name}", {**base, "max_tokens": 64, **_spoilt(fields)})
            await session.chat(f"after/grammar/{dialect.name}", {**plain, "temperature": 0})
            break
    await _good(session, base, "good-after")


async def _good(session: Session, base: dict[str, Json], step: str) -> None:
    room: int | None = None
    for name in (step, f"{step}-again"):
        wanted = response_format(with_nonce(NONCE_SCHEMA, session.nonce()))
        body: dict[str, Json] = {**base, "response_format": wanted}
        if room is not None:
            body["max_tokens"] = room
        room = more_room(reply.chat(await session.chat(name, body)), int(str(base["max_tokens"])))
        if room is None:
            return
        base["max_tokens"] = room


def _spoilt(fields: Json) -> dict[str, Json]:
    """Return a dialect's fields with a grammar that ends too early."""
    if not isinstance(fields, dict):
        return {}
    return {key: _spoilt(value) if isinstance(value, dict) else _BAD_GRAMMAR for key, value in fields.items()}


def _look(transcript: Transcript, step: str) -> reply.Reply | None:
    return latest(reply_at(transcript, f"{step}-again"), reply_at(transcript, step))


def _dialect_works(transcript: Transcript, dialect: Dialect) -> bool:
    found = reply_at(transcript, f"good-grammar/{dialect.name}")
    if not isinstance(found, reply.Answer):
        return False
    word = word_in(found.exchange)
    return bool(word) and word in found.text


def judge(transcript: Transcript, _: BadSchemasParams) -> Iterator[Finding]:
    """Judge the plain requests together, the streamed ones, the grammar, and what works afterwards."""
    part = Part()
    good = judge_schema(part, _REFUSED, _look(transcript, "good"), reply_at(transcript, "control"), NONCE_SCHEMA)
    if good.outcome in (Outcome.REFUSED, Outcome.VIOLATED) or not (
        transcript.steps("plain/") or transcript.steps("stream/")
    ):
        yield good
        return
    for mode, name in ((Mode.NON_STREAM, "plain"), (Mode.STREAM, "stream")):
        yield from _judge(Part(mode=mode), transcript, transcript.steps(f"{name}/"), good)
    yield from _judge_grammar(part, transcript)
    if good.outcome is Outcome.HELD:
        after = _look(transcript, "good-after")
        if isinstance(after, reply.Refusal):
            yield part.violated(_WORKS, f"the good schema is refused after the bad ones: {after.what}", after)
        else:
            yield judge_schema(part, _WORKS, after, reply_at(transcript, "control"), NONCE_SCHEMA)


@dataclass(slots=True)
class _Tally:
    """What came of the bad schemas of one mode, in words."""

    silent: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    wordless: list[str] = field(default_factory=list)


def _judge(part: Part, transcript: Transcript, tried: Sequence[Exchange], good: Finding) -> Iterator[Finding]:
    if not tried:
        return
    tally, careless, hurt = _Tally(), _Tally(), []
    for exchange in tried:
        name = exchange.step.partition("/")[2]
        _sort(exchange, name, careless if name in _LESSER else tally)
        hurt += _hurt(transcript, exchange)
    afters = [found for one in tried if (found := transcript.get(f"after/{one.step}")) is not None]
    # A fault of the server is one whatever the schema was; that a careless one is let through is a lesser one.
    silent, wrong = tally.silent + careless.silent, tally.wrong + careless.wrong
    yield _all(part, _ANSWERED, silent, f"each of {len(tried)} bad schemas got a whole reply", tried)
    each = "each of " if len(afters) == len(tried) else ""
    yield _all(part, _SERVED, hurt, f"a plain request was served after {each}{len(tried)}", (*tried, *afters))
    if wrong or tally.refused or tally.accepted:
        yield _refused(part, tried, tally, wrong, good)
    if careless.accepted:
        yield part.violated(_CARELESS, "; ".join(careless.accepted), *tried)
    elif careless.refused:
        yield part.held(_CARELESS, "; ".join(careless.refused), *tried)
    if tally.refused or careless.refused:
        wordless = tally.wordless + careless.wordless
        yield _all(part, _NAMED, wordless, "every refusal says what is wrong", tried)


def _refused(part: Part, tried: Sequence[Exchange], tally: _Tally, wrong: list[str], good: Finding) -> Finding:
    if wrong:
        return part.violated(_REFUSED, "; ".join([*wrong, *tally.accepted]), *tried)
    if not tally.accepted:
        return part.held(_REFUSED, "; ".join(tally.refused), *tried)
    if good.outcome is not Outcome.HELD:
        why = f"schemas have no effect here, and bad ones none either: {tally.accepted[0]}"
        return part.no_effect(_REFUSED, why, *tried)
    return part.violated(_REFUSED, "; ".join(tally.accepted), *tried)


def _sort(exchange: Exchange, name: str, tally: _Tally) -> None:
    whole = exchange.ending not in (Ending.TRUNCATED, Ending.DEADLINE) and exchange.status is not None
    how = refusal(exchange) if whole else None
    if how is not None:
        words = f": {quote(how.message or how.text, 70)}"
        code = how.code
        if code is not None and code >= 500 and code != reply.NOT_IMPLEMENTED:
            tally.wrong.append(f"{name}: {'an error event of code' if how.streamed else 'HTTP'} {code}{words}")
            return
        tally.refused.append(f"{name}: {code or 'an error event'}{words}")
        if not how.message:
            tally.wordless.append(f"{name}: {quote(how.text, 70)}")
        return
    answer = reply.chat(exchange)
    if isinstance(answer, reply.Answer):
        text = answer.text or thought(answer)
        tally.accepted.append(f"{name}: accepted with 200: {quote(text, 50)}, finish_reason {answer.finish!r}")
    else:
        tally.silent.append(f"{name}: {answer.what}")


def _hurt(transcript: Transcript, exchange: Exchange) -> list[str]:
    after = reply_at(transcript, f"after/{exchange.step}")
    if isinstance(after, reply.Refusal | reply.Failure):
        return [f"after {exchange.step.partition('/')[2]}: {after.what}"]
    return []


def _all(part: Part, check: str, wrong: Sequence[str], right: str, seen: Sequence[Exchange]) -> Finding:
    return part.violated(check, "; ".join(wrong), *seen) if wrong else part.held(check, right, *seen)


def _judge_grammar(part: Part, transcript: Transcript) -> Iterator[Finding]:
    for exchange in transcript.steps("grammar/"):
        tally = _Tally()
        name = f"{exchange.step.partition('/')[2]} {quote(_BAD_GRAMMAR)}"
        _sort(exchange, name, tally)
        bad = [*tally.silent, *tally.wrong, *tally.accepted]
        yield _all(part, _GRAMMAR, bad, "; ".join(tally.refused), (exchange,))
        if hurt := _hurt(transcript, exchange):
            yield part.violated(_SERVED, hurt[0], exchange)


def cost(params: BadSchemasParams) -> Cost:
    """Return what a trial costs with these parameters; tokens as measured on the reference server."""
    streamed = len(_SOME) if params.streamed == "some" else len(_VALUES) + 1
    bad = len(_VALUES) + 1 + streamed
    good = bad if params.good_after == "each" else 2
    requests = 3 + bad + good + (3 if params.grammar else 0)
    return Cost(
        requests=requests, prompt_tokens=135 + 20 * good + (65 if params.grammar else 0), output_tokens=50 + good
    )


PROBE = Probe(
    id="bad_schemas",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_REFUSED,
            rule="A schema that nothing can fit is refused with 4xx, or by an error event in a stream that has begun.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_ANSWERED,
            rule="A request with a bad schema gets a whole reply.",
            level=Level.MUST,
            source="https://github.com/vllm-project/vllm/issues/44269",
        ),
        Check(
            id=_SERVED,
            rule="A plain request right after a bad schema is answered.",
            level=Level.MUST,
            source="https://github.com/vllm-project/tpu-inference/issues/1850",
        ),
        Check(
            id=_WORKS,
            rule="A good schema shapes the answer after bad ones as it did before.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_CARELESS,
            rule="A pattern that is no regular expression is refused, and so is json_schema without a schema.",
            level=Level.SHOULD,
            source="https://json-schema.org/draft/2020-12/json-schema-validation#section-6.3.3",
        ),
        Check(
            id=_GRAMMAR,
            rule="A grammar that is not one is refused.",
            level=Level.SHOULD,
            source="https://docs.vllm.ai/en/latest/features/structured_outputs/",
        ),
        Check(
            id=_NAMED,
            rule="The refusal of a schema says in a message what is wrong.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/35438",
        ),
    ),
    params=BadSchemasParams,
    drive=drive,
    judge=judge,
    cost=cost,
)
