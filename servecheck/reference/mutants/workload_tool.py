"""Servers that refuse, do not call or do not enforce a tool of yours, and servers that only write calls oddly."""

from __future__ import annotations

import json
from typing import Any

from servecheck.judging import STAYS_HEALTHY
from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.chat import Toolbox
from servecheck.reference.fields import ApiError
from servecheck.reference.longthought import LongThought
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.mutants import tools_required as shared
from servecheck.reference.mutants import tools_strict as strict
from servecheck.reference.server import ReferenceServer
from servecheck.reference.toolfaults import OtherText

__all__ = ["HARMLESS", "MUTANTS"]


class KeywordRefused(ReferenceServer):
    """Refuses a tool whose parameters have bounds, without saying which keyword it is."""

    def tools_of(self, body: Event) -> Toolbox:
        """Refuse."""
        if '"minimum"' in json.dumps(body.get("tools") or []):
            raise ApiError("Failed to convert the parameters to a grammar", param="tools")
        return super().tools_of(body)


class ObeysTheUser(OtherText):
    """Writes a strict tool's arguments as the user asks for them, whatever the parameters say."""

    asked = ""

    def calls_constraint(self, toolbox: Toolbox, asked: str) -> Any:  # noqa: ANN401
        """Remember what was asked."""
        self.asked = asked
        return super().calls_constraint(toolbox, asked)

    def rewrite(self, text: str) -> str:
        """Do as the user says."""
        return text.replace('"seats": ', '"seats": 9') if "exactly these arguments" in self.asked else text


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED
_CALLED, _LOOSE, _STRICT = "workload-tool-is-called", "workload-arguments-fit", "workload-strict-arguments-fit"

MUTANTS = (
    Mutant(
        id="own-tool-not-called",
        server=shared.RequiredIgnored,
        trips=((_CALLED, _N),),
        source="vllm-project/vllm#44216",
    ),
    Mutant(id="own-call-as-text", server=shared.CallAsText, trips=((_CALLED, _V),), source="vllm-project/vllm#29725"),
    Mutant(id="own-tools-refused", server=shared.RequiredRefused, trips=((_CALLED, _R),)),
    Mutant(id="own-bounds-refused", server=KeywordRefused, trips=((_CALLED, _R),)),
    Mutant(id="own-strict-refused", server=strict.StrictRefused, trips=((_CALLED, Outcome.HELD), (_CALLED, _R))),
    Mutant(
        id="own-call-kills",
        server=shared.CallKills,
        trips=((STAYS_HEALTHY.id, _V),),
        source="vllm-project/tpu-inference#1850",
    ),
    Mutant(id="own-loose-arguments", server=shared.LooseArguments, trips=((_LOOSE, _V), (_STRICT, Outcome.HELD))),
    Mutant(
        id="own-strict-ignored",
        server=shared.StrictIgnored,
        trips=((_LOOSE, _V), (_STRICT, _V)),
        source="vllm-project/vllm#12201",
    ),
    Mutant(
        id="own-bounds-forgotten",
        server=strict.BoundsForgotten,
        trips=((_STRICT, _V),),
        source="vllm-project/vllm#12201",
    ),
    Mutant(id="own-obeys-the-user", server=ObeysTheUser, trips=((_STRICT, _V),)),
    Mutant(id="own-python-arguments", server=shared.PythonArguments, trips=((_LOOSE, _V), (_STRICT, _V))),
    Mutant(id="own-name-with-prefix", server=shared.NameWithPrefix, trips=((_CALLED, _V),)),
    Mutant(
        id="own-empty-list-of-calls",
        server=shared.EmptyListOfCalls,
        trips=((_CALLED, _N),),
        source="vllm-project/vllm#53363",
    ),
    Mutant(
        id="own-call-in-reasoning",
        server=shared.CallInReasoning,
        trips=((_CALLED, _V),),
        source="vllm-project/vllm#48748",
    ),
    Mutant(
        id="own-call-blames-the-body",
        server=shared.BlamesTheBody,
        trips=((_CALLED, _R),),
        source="vllm-project/vllm#27921",
    ),
)

HARMLESS = (
    Harmless(id="own-finish-stop", server=shared.FinishStop, source="vllm-project/vllm#25054"),
    Harmless(id="own-two-calls", server=shared.TwoCalls),
    Harmless(id="own-spaced-arguments", server=strict.ReorderedSpaces),
    Harmless(id="own-text-before-call", server=shared.TextBeforeCall),
    Harmless(id="own-extra-fields", server=shared.ExtraFields),
    Harmless(id="own-tool-long-thought", server=LongThought, source="vllm-project/vllm#48748"),
)
