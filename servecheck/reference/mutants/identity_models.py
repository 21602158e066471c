"""Lists of models that are wrong, and lists that only look odd; requests for the model are answered all the same."""

from __future__ import annotations

import asyncio
import json

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, half_of, json_reply
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_JSON = (("content-type", "application/json"),)
_HTML = (("content-type", "text/html"),)


# --------------------------------------------------------------------------- broken


class RouteMissing(ReferenceServer):
    """Has no list of models at all: 404."""

    async def reply_models(self, request: Request) -> Reply:
        """Know no such route."""
        raise ApiError(f"no route {request.path}", status=404, kind="not_found_error", code="not_found")


class ProxyDenies(ReferenceServer):
    """A proxy in front answers 403 with plain text instead of the list, although requests pass."""

    async def reply_models(self, _: Request) -> Reply:
        """Answer as a proxy that lost its upstream."""
        text = b"upstream connect error or disconnect/reset before headers"
        return Reply(status=403, headers=(("content-type", "text/plain"),), body=text)


class GatewayPage(ReferenceServer):
    """A gateway answers 504 with a page of HTML."""

    async def reply_models(self, _: Request) -> Reply:
        """Answer with a page."""
        return Reply(status=504, headers=_HTML, body=b"<html><body>504 Gateway Time-out</body></html>")


class ListIsCut(ReferenceServer):
    """Loses the connection in the middle of the list."""

    async def reply_models(self, _: Request) -> Reply:
        """Send half of the body."""
        return Reply(headers=_JSON, body=half_of(json.dumps(self.models_list()).encode()))


class ListHangs(ReferenceServer):
    """Accepts the request for the list and never answers it, while everything else works."""

    async def reply_models(self, request: Request) -> Reply:
        """Wait for ever."""
        await asyncio.Event().wait()
        return await super().reply_models(request)


class LengthNotANumber(ReferenceServer):
    """Writes a length that it does not know as the literal ``NaN``, which is not JSON."""

    def model_entry(self) -> Event:
        """Put a value there that JSON cannot hold."""
        return {**super().model_entry(), "max_model_len": float("nan")}


class PythonList(ReferenceServer):
    """Writes the list as Python shows it, with single quotes."""

    async def reply_models(self, _: Request) -> Reply:
        """Write the ``repr``."""
        return Reply(headers=_JSON, body=repr(self.models_list()).encode())


class ErrorWith200(ReferenceServer):
    """Answers 200 with an error object where the list should be."""

    async def reply_models(self, _: Request) -> Reply:
        """Hide the error behind a good status."""
        return json_reply(self.error_body(ApiError("no worker is registered", status=500, kind="InternalServerError")))


class EmptyList(ReferenceServer):
    """Lists nothing, as a gateway before its first worker has registered."""

    def models_list(self) -> Event:
        """Leave all models out."""
        return {"object": "list", "data": []}


class BareArray(ReferenceServer):
    """Answers with the bare array of models instead of an object that holds it under ``data``."""

    async def reply_models(self, _: Request) -> Reply:
        """Leave the wrapper out."""
        return json_reply([self.model_entry()])


class ListedNameRefused(ReferenceServer):
    """Lists a name with a colon and reads it as a model and an adapter in requests, so that it refuses its own name."""

    def check_model(self, body: Event) -> None:
        """Refuse the part behind the colon."""
        _, colon, adapter = str(body.get("model") or "").partition(":")
        if colon:
            raise ApiError(f"adapter {adapter} is unknown", kind="BadRequestError")
        super().check_model(body)


class NameSplitAtColon(ReferenceServer):
    """Takes the served name for ``model:adapter`` and lists its two halves, so that the whole is not there."""

    def models_list(self) -> Event:
        """List both halves."""
        base, _, adapter = self.model.partition(":")
        return {"object": "list", "data": [{**self.model_entry(), "id": name} for name in (base, adapter)]}


class ListsItsPath(ReferenceServer):
    """Lists the path of the weights instead of the name under which requests are served."""

    def model_entry(self) -> Event:
        """Name the path."""
        return {**super().model_entry(), "id": "/weights/base"}


class EntryWithoutId(ReferenceServer):
    """Lists a second model that has no id."""

    def models_list(self) -> Event:
        """Add a nameless one."""
        nameless = {key: value for key, value in self.model_entry().items() if key != "id"}
        return {"object": "list", "data": [self.model_entry(), nameless]}


class WrongObject(ReferenceServer):
    """Calls its entries ``engine`` as the API did long ago."""

    def model_entry(self) -> Event:
        """Change the object's name."""
        return {**super().model_entry(), "object": "engine"}


class ListedTwice(ReferenceServer):
    """Lists the same model once per replica."""

    def models_list(self) -> Event:
        """Repeat the entry."""
        return {"object": "list", "data": [self.model_entry(), self.model_entry()]}


class LengthNullForAdapter(ReferenceServer):
    """Gives the base model's length and ``null`` for its adapter, so tools that size prompts by it fail."""

    def models_list(self) -> Event:
        """Add an adapter without a length."""
        adapter = {**self.model_entry(), "id": "adapter-1", "parent": self.model, "max_model_len": None}
        return {"object": "list", "data": [self.model_entry(), adapter]}


class LengthIsText(ReferenceServer):
    """Writes ``max_model_len`` as text."""

    def model_entry(self) -> Event:
        """Quote the number."""
        return {**super().model_entry(), "max_model_len": str(self.max_model_len)}


# --------------------------------------------------------------------------- odd, but right


class NoLength(ReferenceServer):
    """Gives no ``max_model_len``, which is an extension: Ray Serve and transformers give none."""

    def model_entry(self) -> Event:
        """Leave the length out."""
        return {key: value for key, value in super().model_entry().items() if key != "max_model_len"}


class LengthUnknown(ReferenceServer):
    """Writes ``max_model_len: null`` for its only model: not known, and said so."""

    def model_entry(self) -> Event:
        """Empty the length."""
        return {**super().model_entry(), "max_model_len": None}


class CreatedIsNow(ReferenceServer):
    """Gives the time of the call as the time of creation, as vLLM and SGLang do."""

    def model_entry(self) -> Event:
        """Count on with every call."""
        return {**super().model_entry(), "created": 1_700_000_000 + next(self._requests)}


class SeveralNames(ReferenceServer):
    """Lists one model under several names, with adapters and their parent behind it."""

    def models_list(self) -> Event:
        """Add an alias and an adapter that says nothing of its length."""
        adapter = {"id": "adapter-1", "object": "model", "created": 1, "owned_by": "somebody", "parent": self.model}
        return {"object": "list", "data": [{**self.model_entry(), "id": "alias"}, self.model_entry(), adapter]}


class MoreFields(ReferenceServer):
    """Adds the fields of llama.cpp (a second list) and vLLM (root, permissions), with nulls."""

    def models_list(self) -> Event:
        """Add fields."""
        entry = {**self.model_entry(), "root": "/weights", "parent": None, "permission": [{"id": "p"}], "meta": None}
        return {"object": "list", "models": [{"name": self.model, "details": {"format": "gguf"}}], "data": [entry]}


class NameWithColon(ReferenceServer):
    """Serves its model under a name with a colon in it, which is a name like any other."""


class SlowList(ReferenceServer):
    """Takes fourteen seconds for the list, as a gateway that first asks its workers."""

    async def reply_models(self, request: Request) -> Reply:
        """Wait before answering."""
        await asyncio.sleep(14)
        return await super().reply_models(request)


class OtherContentType(ReferenceServer):
    """Sends the list as ``text/plain``; clients read it all the same."""

    async def reply_models(self, _: Request) -> Reply:
        """Change the header."""
        body = json.dumps(self.models_list(), indent=2).encode()
        return Reply(headers=(("content-type", "text/plain"),), body=body)


_V = Outcome.VIOLATED
_LISTED, _CONFIGURED = "models-are-listed", "configured-model-is-listed"
_USABLE, _TYPED = "listed-model-can-be-named", "model-list-has-the-documented-types"
_FORMED, _LENGTH = "model-entries-are-well-formed", "max-model-len-is-a-length"


class _Entries(ReferenceServer):
    """Changes every entry of the list; subclasses say how."""

    def spoil(self, entry: Event) -> None:
        """Change it in place."""
        raise NotImplementedError

    def models_list(self) -> Event:
        """Change them."""
        made = super().models_list()
        for entry in made["data"]:
            self.spoil(entry)
        return made


class OwnerMissing(_Entries):
    """Says of no model who owns it."""

    def spoil(self, entry: Event) -> None:
        """Drop the owner."""
        del entry["owned_by"]


class CreatedMissing(_Entries):
    """Says of no model when it was made."""

    def spoil(self, entry: Event) -> None:
        """Drop the time."""
        del entry["created"]


class CreatedIsDate(_Entries):
    """Gives the time of creation as a date in words of a standard."""

    def spoil(self, entry: Event) -> None:
        """Write it as text."""
        entry["created"] = "2024-01-01T00:00:00Z"


class ListUnnamed(ReferenceServer):
    """Sends the entries without saying that they are a list."""

    def models_list(self) -> Event:
        """Drop the name."""
        return {"data": super().models_list()["data"]}


class CreatedIsZero(_Entries):
    """Does not know when its models were made, and says 0."""

    def spoil(self, entry: Event) -> None:
        """Set it to 0, and the owner to nobody."""
        entry["created"] = 0
        entry["owned_by"] = ""


MUTANTS = (
    Mutant(id="owner-missing", server=OwnerMissing, trips=((_TYPED, _V),), source="openai-php/client#598"),
    Mutant(id="created-missing", server=CreatedMissing, trips=((_TYPED, _V),), source="aallam/openai-kotlin#332"),
    Mutant(id="created-is-date", server=CreatedIsDate, trips=((_TYPED, _V),)),
    Mutant(id="list-unnamed", server=ListUnnamed, trips=((_TYPED, _V),), source="jamesrochabrun/SwiftOpenAI#162"),
    Mutant(id="route-missing", server=RouteMissing, trips=((_LISTED, Outcome.REFUSED),)),
    Mutant(
        id="proxy-denies",
        server=ProxyDenies,
        trips=((_LISTED, Outcome.REFUSED),),
        source="gpustack/gpustack#4725",
    ),
    Mutant(id="gateway-page", server=GatewayPage, trips=((_LISTED, _V),), source="BerriAI/litellm#9551"),
    Mutant(id="list-is-cut", server=ListIsCut, trips=((_LISTED, _V),), source="nicolerenee/infra#2078"),
    Mutant(
        id="list-hangs",
        server=ListHangs,
        trips=((_LISTED, _V),),
        source="vllm-project/vllm#36451",
    ),
    Mutant(
        id="length-not-a-number",
        server=LengthNotANumber,
        trips=((_LISTED, _V),),
        source="sgl-project/sglang#5984",
    ),
    Mutant(id="python-list", server=PythonList, trips=((_LISTED, _V),), source="vllm-project/vllm#57997"),
    Mutant(id="error-with-200", server=ErrorWith200, trips=((_LISTED, _V),), source="ggml-org/llama.cpp#14566"),
    Mutant(id="empty-list", server=EmptyList, trips=((_LISTED, _V),)),
    Mutant(id="bare-array", server=BareArray, trips=((_LISTED, _V),)),
    Mutant(
        id="name-split-at-colon",
        server=NameSplitAtColon,
        trips=((_CONFIGURED, _V),),
        source="sgl-project/sglang#12745",
        config={"model": "reference:120b"},
    ),
    Mutant(
        id="listed-name-refused",
        server=ListedNameRefused,
        trips=((_USABLE, _V),),
        source="sgl-project/sglang#12745",
        config={"model": "reference:120b"},
    ),
    Mutant(id="lists-its-path", server=ListsItsPath, trips=((_CONFIGURED, _V),)),
    Mutant(id="entry-without-id", server=EntryWithoutId, trips=((_FORMED, _V),)),
    Mutant(id="wrong-object", server=WrongObject, trips=((_FORMED, _V),)),
    Mutant(id="listed-twice", server=ListedTwice, trips=((_FORMED, _V),)),
    Mutant(
        id="length-null-for-adapter",
        server=LengthNullForAdapter,
        trips=((_LENGTH, _V),),
        source="vllm-project/production-stack#331",
    ),
    Mutant(id="length-is-text", server=LengthIsText, trips=((_LENGTH, _V),)),
)

HARMLESS = (
    Harmless(id="created-is-zero", server=CreatedIsZero, source="BerriAI/litellm#5275"),
    Harmless(id="no-length", server=NoLength, source="vllm-project/production-stack#331"),
    Harmless(id="length-unknown", server=LengthUnknown),
    Harmless(id="created-is-now", server=CreatedIsNow),
    Harmless(id="several-names", server=SeveralNames),
    Harmless(id="more-fields", server=MoreFields),
    Harmless(id="slow-list", server=SlowList),
    Harmless(id="other-content-type", server=OtherContentType),
    Harmless(id="name-with-a-colon", server=NameWithColon, config={"model": "reference:120b"}),
)
