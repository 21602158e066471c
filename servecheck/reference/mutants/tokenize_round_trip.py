"""Tokenizer routes that are absent, count otherwise than usage, or give another text back."""

from __future__ import annotations

import json
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import decode, encode, piece

__all__ = ["HARMLESS", "MUTANTS"]


class _Changed(ReferenceServer):
    """Changes the replies of both routes with :meth:`taken_apart` and :meth:`put_together`."""

    def taken_apart(self, made: Event, chat: bool) -> Event:  # noqa: ARG002
        """Return the body of a reply of ``/tokenize``."""
        return made

    def put_together(self, made: Event, tokens: list[int]) -> Event:  # noqa: ARG002
        """Return the body of a reply of ``/detokenize``."""
        return made

    async def reply_tokenize(self, request: Request) -> Reply:
        """Change the body."""
        made = await super().reply_tokenize(request)
        assert isinstance(made.body, bytes)
        return json_reply(self.taken_apart(json.loads(made.body), "messages" in self.body_of(request)))

    async def reply_detokenize(self, request: Request) -> Reply:
        """Change the body."""
        made = await super().reply_detokenize(request)
        assert isinstance(made.body, bytes)
        return json_reply(self.put_together(json.loads(made.body), self.body_of(request)["tokens"]))


# --------------------------------------------------------------------------- broken


class NoTokenizer(ReferenceServer):
    """Has no such route, as gateways have none."""

    async def reply_tokenize(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


class TokenizerFails(ReferenceServer):
    """Fails inside on every text."""

    async def reply_tokenize(self, request: Request) -> Reply:  # noqa: ARG002
        """Fail."""
        raise ApiError("tokenizer is not initialised", status=500, kind="InternalServerError")


class TokensMissing(_Changed):
    """Gives a count and no tokens."""

    def taken_apart(self, made: Event, chat: bool) -> Event:  # noqa: ARG002
        """Drop the tokens."""
        return {name: value for name, value in made.items() if name != "tokens"}


class BeginningTwice(_Changed):
    """Adds a token for the beginning of the text that a completion of the same text does not have."""

    def taken_apart(self, made: Event, chat: bool) -> Event:
        """Put a token in front."""
        if chat:
            return made
        return {**made, "tokens": [*encode("\n"), *made["tokens"]], "count": made["count"] + 1}

    def put_together(self, made: Event, tokens: list[int]) -> Event:  # noqa: ARG002
        """Take it away again."""
        return {"prompt": made["prompt"][1:]}


class CountOfCharacters(_Changed):
    """Counts characters."""

    def taken_apart(self, made: Event, chat: bool) -> Event:  # noqa: ARG002
        """Change the count."""
        return {**made, "count": len(decode(made["tokens"]))}


class ChatWithoutTemplate(_Changed):
    """Counts the messages' texts without the template that a chat has."""

    def taken_apart(self, made: Event, chat: bool) -> Event:
        """Drop the template's last tokens."""
        kept = made["tokens"][:-3] if chat else made["tokens"]
        return {**made, "tokens": kept, "count": len(kept)}


class TokenByToken(_Changed):
    """Turns each token into text by itself, so that characters of several tokens are lost."""

    def put_together(self, made: Event, tokens: list[int]) -> Event:  # noqa: ARG002
        """Decode one by one."""
        return {"prompt": "".join(piece(token).decode("utf-8", "replace") for token in tokens)}


class SpacesTidied(_Changed):
    """Tidies white space when it gives a text back."""

    def put_together(self, made: Event, tokens: list[int]) -> Event:  # noqa: ARG002
        """Join the words by single spaces."""
        return {"prompt": " ".join(made["prompt"].split())}


class NoWayBack(ReferenceServer):
    """Takes a text apart and has no route to put it together."""

    async def reply_detokenize(self, request: Request) -> Reply:
        """Answer as for any unknown path."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


# --------------------------------------------------------------------------- odd, but right


class LlamaDialect(ReferenceServer):
    """Reads ``content``, gives tokens only, and names the text ``content``."""

    async def reply_tokenize(self, request: Request) -> Reply:
        """Read another field, and nothing where it is not there."""
        content = self.body_of(request).get("content")
        return json_reply({"tokens": list(encode(content)) if isinstance(content, str) else []})

    async def reply_detokenize(self, request: Request) -> Reply:
        """Name the text differently."""
        tokens: Any = self.body_of(request).get("tokens")
        return json_reply({"content": decode(tokens)})


class OtherNames(_Changed):
    """Names the text ``text`` and shows a special token before it."""

    def put_together(self, made: Event, tokens: list[int]) -> Event:  # noqa: ARG002
        """Change the name."""
        return {"text": "<s> " + made["prompt"]}


class PromptsOnly(ReferenceServer):
    """Takes no messages on this route."""

    async def reply_tokenize(self, request: Request) -> Reply:
        """Refuse messages."""
        if "messages" in self.body_of(request):
            raise ApiError("prompt is missing", param="prompt")
        return await super().reply_tokenize(request)


_V, _R = Outcome.VIOLATED, Outcome.REFUSED
_OFFERED, _BACK = "text-becomes-tokens", "tokens-give-the-text-back"

MUTANTS = (
    Mutant(id="no-tokenizer", server=NoTokenizer, trips=((_OFFERED, _R),), source="FlashML-org/FreeToken#477"),
    Mutant(id="tokenizer-fails", server=TokenizerFails, trips=((_OFFERED, _V),)),
    Mutant(id="tokens-missing", server=TokensMissing, trips=((_OFFERED, _V),)),
    Mutant(
        id="beginning-twice",
        server=BeginningTwice,
        trips=(("token-count-is-the-usage", _V),),
        source="ggml-org/llama.cpp#7107",
    ),
    Mutant(id="count-of-characters", server=CountOfCharacters, trips=(("count-is-the-number-of-tokens", _V),)),
    Mutant(id="chat-without-template", server=ChatWithoutTemplate, trips=(("chat-token-count-is-the-usage", _V),)),
    Mutant(id="token-by-token", server=TokenByToken, trips=((_BACK, _V),), source="waybarrios/vllm-mlx#109"),
    Mutant(id="spaces-tidied", server=SpacesTidied, trips=((_BACK, _V),)),
    Mutant(id="no-way-back", server=NoWayBack, trips=((_BACK, _R),)),
)

HARMLESS = (
    Harmless(id="llama-dialect", server=LlamaDialect),
    Harmless(id="other-names", server=OtherNames),
    Harmless(id="prompts-only", server=PromptsOnly),
)
