"""Servers that take schemas nothing can fit, fail on them, hang on them or never recover from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from servecheck.judging import HANGS_NOT, STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request
from servecheck.reference.constraint import AnyObject, Choices, Constraint
from servecheck.reference.fields import ApiError
from servecheck.reference.lateerrors import RefusesWithinTheStream
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class _Catching(ReferenceServer):
    """Hands constraints that cannot be built to :meth:`instead`."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:
        """Return what is applied in place of a constraint that cannot be built, or raise."""
        raise NotImplementedError

    def constraint_of(self, body: Event) -> Constraint | None:
        """Catch a refusal."""
        try:
            return super().constraint_of(body)
        except ApiError as wrong:
            return self.instead(body, wrong)


def _about_grammar(body: Event) -> bool:
    return "structured_outputs" in body


def _about_pattern(body: Event) -> bool:
    return "([" in str(body.get("response_format"))


# --------------------------------------------------------------------------- broken


class BadOnesIgnored(_Catching):
    """Writes a line into its log where a schema cannot be built, and answers without one."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Go without."""
        return None


class BadOnesAnyJson(_Catching):
    """Falls back to any JSON where a schema cannot be built."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Take any object."""
        return AnyObject()


class PatternIgnored(_Catching):
    """Takes a pattern that is no regular expression and drops it."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:
        """Forget the pattern."""
        if _about_pattern(body):
            return AnyObject()
        raise wrong


class GrammarAsServerError(_Catching):
    """Finds the fault of a grammar only in the engine, and calls it its own."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:
        """Fail."""
        if _about_grammar(body):
            raise ApiError("Internal server error", status=500, kind="InternalServerError")
        raise wrong


class GrammarEmpty(_Catching):
    """Takes a grammar without an end for one that allows nothing, and answers with nothing."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:
        """Allow nothing."""
        if _about_grammar(body):
            return Choices(("",))
        raise wrong


class SchemaAsServerError(_Catching):
    """Fails inside with a 500 and an empty message where a schema cannot be built."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Fail."""
        raise ApiError("", status=500, kind="InternalServerError")


class Wordless(_Catching):
    """Refuses without a word."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Say nothing."""
        raise ApiError("")


class ErrorEventOfItsOwn(RefusesWithinTheStream):
    """Begins the stream before it looks at the schema, and then reports a fault of its own in it."""

    def frames_of(self, wrong: ApiError) -> Sequence[bytes]:
        """Stream a 500."""
        failed = ApiError(wrong.message, status=500, kind="InternalServerError", code="500")
        return (self.frame(self.error_body(failed)),)


async def _one(frame: bytes) -> AsyncIterator[bytes]:
    yield frame


class StreamCut(ErrorEventOfItsOwn):
    """Begins the stream before it looks at the schema, and then just ends it."""

    async def reply_chat(self, request: Request) -> Reply:
        """Stream nothing."""
        try:
            return await ReferenceServer.reply_chat(self, request)
        except ApiError:
            if not self.body_of(request).get("stream"):
                raise
            return self.stream_reply(_one(b""))


class BadSchemaHangs(ReferenceServer):
    """Compiles a schema that has no end, for ever."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait for ever."""
        try:
            return await super().reply_chat(request)
        except ApiError:
            await asyncio.Event().wait()
            raise


class BadSchemaKills(ReferenceServer):
    """Loses its engine to the first schema that cannot be built: 500 then, and for everybody afterwards."""

    dead = False

    async def reply_chat(self, request: Request) -> Reply:
        """Die of it."""
        if self.dead:
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError")
        try:
            return await super().reply_chat(request)
        except ApiError as wrong:
            self.dead = True
            raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError") from wrong


class NextOneFails(ReferenceServer):
    """Refuses a bad schema and hands its error to the request behind it as well."""

    owed = False

    async def reply_chat(self, request: Request) -> Reply:
        """Fail once more."""
        if self.owed and "response_format" not in self.body_of(request):
            self.owed = False
            raise ApiError("unknown request id", status=400)
        try:
            return await super().reply_chat(request)
        except ApiError:
            self.owed = True
            raise


class SchemasLost(_Catching):
    """Puts its grammar backend aside after the first schema that it could not build."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self.lost = False

    def constraint_of(self, body: Event) -> Constraint | None:
        """Apply nothing any more."""
        constraint = super().constraint_of(body)
        return None if self.lost else constraint

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Lose it."""
        self.lost = True
        raise wrong


class SchemasIgnored(ReferenceServer):
    """Reads no schema, good or bad."""

    def constraint_of(self, _: Event) -> Constraint | None:
        """Forget the constraint."""
        return None


class SchemasRefused(ReferenceServer):
    """Has no structured output and says so."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Refuse."""
        if "response_format" in body:
            raise ApiError("response_format is not supported", param="response_format")
        return super().constraint_of(body)


# --------------------------------------------------------------------------- odd, but right


class RefusedInTheStream(RefusesWithinTheStream):
    """Begins the stream before it looks at the schema, and refuses by an error event that names it."""

    def frames_of(self, wrong: ApiError) -> Sequence[bytes]:
        """Stream the refusal."""
        wrong.code = "400"
        return super().frames_of(wrong)


class RefusedAsUnprocessable(_Catching):
    """Refuses with 422 and a ``detail``, as one web framework does."""

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Refuse."""
        wrong.status = 422
        raise wrong

    def error_body(self, wrong: ApiError) -> Event:
        """Return ``detail``."""
        return {"detail": [{"msg": wrong.message, "loc": ["body", wrong.param]}]}


class SlowToRefuse(_Catching):
    """Tries for ten seconds before it gives up."""

    async def reply_chat(self, request: Request) -> Reply:
        """Wait before a refusal."""
        try:
            return await super().reply_chat(request)
        except ApiError:
            await asyncio.sleep(10)
            raise

    def instead(self, body: Event, wrong: ApiError) -> Constraint | None:  # noqa: ARG002
        """Refuse as ever."""
        raise wrong


class GrammarsUnknown(ReferenceServer):
    """Has no grammars and drops their fields, so nothing is said of bad ones."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Drop what it does not know."""
        return super().constraint_of({key: value for key, value in body.items() if key != "structured_outputs"})


class OtherDialect(ReferenceServer):
    """Calls the field of a grammar ``ebnf``, as another engine does."""

    def constraint_of(self, body: Event) -> Constraint | None:
        """Read the other name."""
        if "ebnf" in body:
            return super().constraint_of({"structured_outputs": {"grammar": fields.text(body, "ebnf")}})
        return super().constraint_of({key: value for key, value in body.items() if key != "structured_outputs"})


_V, _N, _R, _H = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.HELD
_ANSWERED, _REFUSED, _NAMED = "bad-schema-gets-a-reply", "bad-schema-is-refused", "schema-refusal-has-a-message"
_CARELESS, _GRAMMAR = "careless-schema-is-refused", "bad-grammar-is-refused"
_SERVED, _WORKS = "server-serves-after-a-bad-schema", "good-schema-works-after-bad-ones"

MUTANTS = (
    Mutant(
        id="bad-ones-ignored",
        server=BadOnesIgnored,
        trips=((_REFUSED, _V), (_CARELESS, _V), (_GRAMMAR, _V)),
        source="vllm-project/vllm#12201",
    ),
    Mutant(id="bad-ones-any-json", server=BadOnesAnyJson, trips=((_REFUSED, _V),), source="vllm-project/vllm#12201"),
    Mutant(id="pattern-ignored", server=PatternIgnored, trips=((_REFUSED, _H), (_CARELESS, _V))),
    Mutant(id="grammar-as-server-error", server=GrammarAsServerError, trips=((_REFUSED, _H), (_GRAMMAR, _V))),
    Mutant(id="grammar-empty", server=GrammarEmpty, trips=((_REFUSED, _H), (_GRAMMAR, _V))),
    Mutant(
        id="schema-as-server-error",
        server=SchemaAsServerError,
        trips=((_REFUSED, _V), (_SERVED, _H)),
        source="vllm-project/vllm#35438",
    ),
    Mutant(id="wordless", server=Wordless, trips=((_REFUSED, _H), (_NAMED, _V)), source="vllm-project/vllm#35438"),
    Mutant(
        id="error-event-of-its-own",
        server=ErrorEventOfItsOwn,
        trips=((_REFUSED, _V), (_REFUSED, _H)),
        source="ggml-org/llama.cpp#14566",
    ),
    Mutant(id="cut", server=StreamCut, trips=((_ANSWERED, _V), (_ANSWERED, _H)), source="vllm-project/vllm#43031"),
    Mutant(
        id="bad-schema-hangs",
        server=BadSchemaHangs,
        trips=((HANGS_NOT.id, _V),),
        source="vllm-project/vllm#44269",
    ),
    Mutant(
        id="bad-schema-kills",
        server=BadSchemaKills,
        trips=((STAYS_HEALTHY.id, _V),),
        source="vllm-project/tpu-inference#1850",
    ),
    Mutant(id="next-one-fails", server=NextOneFails, trips=((_SERVED, _V),), source="sgl-project/sglang#22980"),
    Mutant(id="schemas-lost", server=SchemasLost, trips=((_REFUSED, _H), (_WORKS, _N))),
    Mutant(id="schemas-ignored", server=SchemasIgnored, trips=((_REFUSED, _N),), source="vllm-project/vllm#9900"),
    Mutant(id="schemas-refused", server=SchemasRefused, trips=((_REFUSED, _R),)),
)

HARMLESS = (
    Harmless(id="refused-in-the-stream", server=RefusedInTheStream),
    Harmless(id="refused-as-unprocessable", server=RefusedAsUnprocessable, source="vllm-project/vllm#12886"),
    Harmless(id="slow-to-refuse", server=SlowToRefuse),
    Harmless(id="grammars-unknown", server=GrammarsUnknown),
    Harmless(id="other-dialect", server=OtherDialect),
    Harmless(id="long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
