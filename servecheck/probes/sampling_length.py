"""``min_tokens`` and ``ignore_eos`` keep an answer going that would end by itself.

What it does: asks for an answer that ends early (the control says how early), then for the same with ``min_tokens``
above that, or with ``ignore_eos``: plain, streamed, with no other sampling parameter, and on the completions route
where the text ends by itself there. Counts tokens by usage, and looks for the control's own end token among those that
``min_tokens`` covers, by ids or logprobs.

Why it matters: benchmarks depend on ``ignore_eos`` for equal lengths. With ``min_tokens`` an end token has to be
impossible, not only passed over: behind one that was passed over a model talks to itself.

How it could be fooled: by a server that tells neither ids nor logprobs, where an end token inside cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import Field

from servecheck.model import Check, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._steps import answer_at, reply_at, sent
from servecheck.probes._token_ids import Piece, ask_telling, pieces, telling
from servecheck.read import reply
from servecheck.read.text import quote

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/api/vllm/sampling_params/"
_REACHED, _NO_END = "min-tokens-are-reached", "no-end-token-inside-min-tokens"
_RUNS = "answer-runs-to-its-limit"
_CHECKS = {"min_tokens": _REACHED, "ignore_eos": _RUNS}
_MORE = 12  # tokens beyond the control's own end
_LEAST = 20
_ROOM = 24  # tokens that an answer with min_tokens may go on behind them
_SPECIAL = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
)


class SamplingLengthParams(Params):
    """What may be chosen in YAML."""

    parameter: Literal["min_tokens", "ignore_eos"] = Field(description="The parameter to exercise.")
    prompts: tuple[str, ...] = Field(
        default=("What is 2+2? Reply with the number only.", "Say yes."),
        min_length=1,
        max_length=8,
        description="Prompts whose answer ends early; the first that does so is taken.",
    )
    completion_prompt: str = Field(default="Question: What is 2+2?\nAnswer:", description="The text on completions.")
    limit: int = Field(default=256, ge=64, le=4096, description="Room for the control to end by itself.")


class _Arm(NamedTuple):
    """One route: what its steps are called and where they go."""

    route: Route
    prefix: str
    path: str


_ARMS = (_Arm(Route.CHAT, "", "/chat/completions"), _Arm(Route.COMPLETIONS, "completions-", "/completions"))


async def drive(session: Session, params: SamplingLengthParams, _: Transcript | None) -> None:
    """The control, then the parameter in each mode, and alone."""
    for arm in _ARMS:
        chat = arm.route is Route.CHAT
        prompts = params.prompts if chat else (params.completion_prompt,)
        for place, prompt in enumerate(prompts):
            body: dict[str, Json] = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
            greedy: dict[str, Json] = {**body, "temperature": 0, "top_p": 1}
            step = f"{arm.prefix}control-{place}"
            room = params.limit if chat else min(48, params.limit)
            await ask_telling(session, step, {**greedy, "max_tokens": room}, path=arm.path)
            if _end(session.transcript, step) is not None:
                break
        found = _control(session.transcript, arm)
        if found is None:
            continue
        step, end = found
        tells = telling(session.transcript, step)
        asked = _asked(params.parameter, end)
        await session.post(f"{arm.prefix}kept", arm.path, {**greedy, **tells, **asked})
        if chat:
            logprobs = {name: value for name, value in tells.items() if name != "return_token_ids"}
            streamed: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
            await session.chat("kept-stream", {**greedy, **logprobs, **asked, **streamed})
            await session.chat("kept-alone", {**body, **tells, **asked})


def _asked(parameter: str, end: int) -> dict[str, Json]:
    """Return the fields that keep an answer going which ends after so many tokens."""
    goal = max(_LEAST, end + _MORE)
    if parameter == "min_tokens":
        return {"min_tokens": goal, "max_tokens": goal + _ROOM}
    return {"ignore_eos": True, "max_tokens": goal}


def _end(transcript: Transcript, step: str) -> int | None:
    """Return after how many tokens an answer ended by itself, ``None`` where it did not or that is not known."""
    answer = answer_at(transcript, step)
    return _count(answer) if answer is not None and answer.finish == "stop" else None


def _control(transcript: Transcript, arm: _Arm) -> tuple[str, int] | None:
    """Return the control that ended by itself, with its number of tokens."""
    for exchange in transcript.steps(f"{arm.prefix}control-"):
        end = _end(transcript, exchange.step)
        if end is not None:
            return exchange.step, end
    return None


def _count(answer: reply.Answer) -> int | None:
    """Return the number of tokens of an answer, from usage or else as far as it tells them."""
    if answer.usage is not None and answer.usage.completion is not None:
        return answer.usage.completion
    return len(pieces(answer)) or None


def judge(transcript: Transcript, params: SamplingLengthParams) -> Iterator[Finding]:
    """Judge each route against its control."""
    for arm in _ARMS:
        found, check = _control(transcript, arm), _CHECKS[params.parameter]
        if found is None:
            if arm.route is Route.CHAT:  # a completion need not end by itself, and the route is an extension
                tried = [reply_at(transcript, exchange.step) for exchange in transcript.steps("control-")]
                why = next((each.what for each in tried if isinstance(each, reply.Refusal | reply.Failure)), "")
                why = why or "no answer ended by itself, with its tokens counted, so nothing can be kept from ending"
                yield Part().undetermined(check, why, *sent(*tried))
            continue
        step, end = found
        control = answer_at(transcript, step)
        assert control is not None
        for name in ("kept", "kept-stream", "kept-alone"):
            if transcript.get(f"{arm.prefix}{name}") is None and name != "kept":
                continue
            part = Part(route=arm.route, mode=Mode.STREAM if name == "kept-stream" else Mode.NON_STREAM)
            kept = reply_at(transcript, f"{arm.prefix}{name}")
            missing = part.unless_answered(check, kept, control)
            if missing is not None:
                yield missing
            elif isinstance(kept, reply.Answer) and params.parameter == "ignore_eos":
                yield _runs(part, kept, control, end)
            elif isinstance(kept, reply.Answer):
                yield from _reaches(part, kept, control, end, sampled=name == "kept-alone")


def _runs(part: Part, kept: reply.Answer, control: reply.Answer, end: int) -> Finding:
    limit, count = max(_LEAST, end + _MORE), _count(kept)
    said = f"{count} tokens and finish_reason {kept.finish!r} with max_tokens {limit}, {end} tokens without ignore_eos"
    if kept.finish == "length" and count in (None, limit):
        return part.held(_RUNS, said, kept, control)
    if kept.finish == "stop" and (count is None or count < limit):
        return part.no_effect(_RUNS, said, kept, control)
    return part.violated(_RUNS, said, kept, control)


def _reaches(part: Part, kept: reply.Answer, control: reply.Answer, end: int, *, sampled: bool) -> Iterator[Finding]:
    goal, count = max(_LEAST, end + _MORE), _count(kept)
    said = f"{count} tokens with min_tokens {goal}, {end} without"
    if count is None:
        yield part.undetermined(_REACHED, "the tokens are not counted: no usage, no ids, no logprobs", kept, control)
        return
    if count < goal:
        # A greedy answer that ends elsewhere was kept from ending once: heard, not obeyed. Sampled ones end anywhere.
        early = sampled or count <= end or _said(kept) == _said(control)
        yield (part.no_effect if early else part.violated)(_REACHED, said, kept, control)
        return
    yield part.held(_REACHED, said, kept, control)
    got = pieces(kept)[: goal - 1]  # engines differ in whether the end itself may be the last of these
    ends = _ends(control)
    inside = [place for place, piece in enumerate(got) if any(piece.is_same(each) for each in ends)]
    if inside:
        name = quote(got[inside[0]].text or f"token {got[inside[0]].id}", 24)
        why = f"the end token {name} is token {inside[0] + 1} of {count}, inside min_tokens {goal}: {quote(kept.text)}"
        yield part.violated(_NO_END, why, kept, control)
    elif len(got) >= goal - 1 and ends:
        yield part.held(_NO_END, f"no end token among the first {goal - 1}: {quote(kept.text, 60)}", kept, control)


def _ends(control: reply.Answer) -> tuple[Piece, ...]:
    """Return what an end token looks like here: the last one of the control, and well-known names."""
    got, end = pieces(control), _count(control)
    # Some servers leave the end token out, and then the last one is a word like any other.
    own = got[-1:] if got and len(got) == end and not _shows(control, got[-1]) else ()
    return (*own, *(Piece(text=name) for name in _SPECIAL))


def _shows(answer: reply.Answer, piece: Piece) -> bool:
    """Tell whether a token can be the visible end of a text."""
    return bool(piece.text) and _said(answer).endswith(piece.text or "")


def _said(answer: reply.Answer) -> str:
    return answer.first.reasoning + answer.text


PROBE = Probe(
    id="sampling_length",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_REACHED,
            rule="An answer that would end by itself has at least min_tokens tokens.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_NO_END,
            rule="No end token is generated among the first min_tokens tokens.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_RUNS,
            rule="With ignore_eos an answer runs to max_tokens, and finish_reason is “length”.",
            level=Level.MUST,
            source=_SOURCE,
        ),
    ),
    params=SamplingLengthParams,
    drive=drive,
    judge=judge,
    requests=6,
    prompt_tokens=160,
    output_tokens=130,
)
