"""At what precision the model is served, and what says so.

What it does: reads the fingerprint that was made at the start of the run (settings that the server shows, what the user
declared, and last the name of the model) and asks for the list of models as its evidence.

Why it matters: two endpoints at unlike precision are not expected to give the same numbers, and a comparison that does
not say so misleads.

How it could be fooled: by a name. What a checkpoint is called is not what the hardware computes with: FP8 weights are
widened where the chip has no FP8, and engines on TPUs quantize anew what they load. Only settings that the server
shows count as observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from servecheck.model import How, Known, Observed, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._values import observed

__all__ = ["PROBE"]

# The lists of methods in tpu-inference 0.32 and in vllm-torchtpu of July 2026; both raise for all others.
_NOT_ON_TPU = re.compile(r"^(?:gptq.*|bnb|bitsandbytes|gguf|i?q[1-8]_.*)$", re.IGNORECASE)
_TPU_NOTE = (
    "this format was on neither list of methods that vLLM's TPU back ends accept (tpu-inference 0.32 of October 2026, "
    "vllm-torchtpu of July 2026), so a move to TPU is likely to need other weights"
)


async def drive(session: Session, _: Params, __: Transcript | None) -> None:
    """The list of models."""
    await session.get("models", "/models")


def judge(transcript: Transcript, _: Params) -> Iterator[Observed]:
    """Name the precision of the weights, and of the rest where it shows."""
    seen = transcript.get("models")
    nothing = Known(value=None, how=How.UNKNOWN)
    names = ("quantization", "dtype", "kv_cache_dtype")
    weights, dtype, cache = (transcript.fingerprint.fields.get(name, nothing) for name in names)
    rest = [
        # What somebody said stands beside what was seen, and is not to be taken for it.
        (f"{word} {known.value}" + (f" ({known.how})" if weights.value and known.how is not weights.how else ""), known)
        for word, known in (("dtype", dtype), ("KV cache", cache))
        if known.value
    ]
    said = "; ".join(f"{words}: {known.source}" for words, known in rest)
    if weights.value is None:
        beside = f" ({', '.join(words for words, _ in rest)})" if rest else ""
        why = "the server does not show how its weights are quantized, and nobody declared it"
        yield observed(f"not shown{beside}", "; ".join(filter(None, (why, said))), seen, how=How.UNKNOWN)
        return
    value = ", ".join((weights.value, *(words for words, _ in rest)))
    why = "; ".join(filter(None, (f"{weights.value}: {weights.source}", said)))
    if _NOT_ON_TPU.match(weights.value):
        why += f"; {_TPU_NOTE}"
    yield observed(value, why, seen, how=weights.how)


PROBE = Probe(
    id="quantization_identity",
    doc=__doc__ or "",
    checks=(),
    params=Params,
    drive=drive,
    judge=judge,
    requests=1,
)
