"""The first request of a new shape takes no longer than the next one of that shape.

What it does: climbs a short ladder of shapes, the cheapest first: prompts of 48, 96, 192 … tokens (one in each range
that doubles), batches, and the first use of logprobs, of sampling and of a JSON answer. Each shape is sent once (cold),
then again with other words in front (warm), and all of them once more at the end. A first use stalls where it takes a
second longer than the later ones and five times as long; that comes of the same length, so what length costs anyway
cancels out. A stall is looked at again at once: the same shape twice more, and a prompt a tenth longer, which tells
whether shapes are finer than doubling. Counters are read around it: seconds that the server's own queue or other users'
tokens explain are taken off, and answers from the prefix cache are left out. A control of a short prompt before each
shape shows how quiet the server is; where it stalls too, a first use counts only at twice its worst. The first
structured request is timed, named and not counted, since setting up a grammar looks the same. With a sample of traffic
it says which share of it has such shapes.

Why it matters: a server that compiles while it serves makes one user wait for seconds or minutes, and all that run with
them; after each restart and on each replica again.

How it could be fooled: by a server whose shapes were all used before (where its counters do not show that it is new,
nothing is decided); without counters, by one burst of another user's requests that hits a first use and nothing else;
by a stall that is shorter than five times what the shape takes anyway. Lengths between those of the ladder are not
tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from servecheck import firstuse, stats
from servecheck.firstuse import Limits, Reading, Stall, Use
from servecheck.model import Check, Exchange, Finding, Json, Level, Mode, Outcome, Risk, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.probes._shape_uses import (
    CONTROL,
    LEAD,
    STEP_NAME,
    Counters,
    answer_of,
    counters_of,
    frame_of,
    groups_of,
    longest_before,
    total_of,
    use_of,
    uses_of,
)
from servecheck.read import reply

__all__ = ["PROBE"]

_SOURCE = "https://docs.vllm.ai/en/latest/design/torch_compile/"
_PART = Part(mode=Mode.STREAM)
_QUICK, _STAYS, _ANSWERED = "first-use-is-as-quick", "used-shape-stays-quick", "new-shape-is-answered"
_WORDS = (
    *("river", "stone", "cloud", "garden", "window", "table", "letter", "silver", "morning", "paper", "market"),
    *("bridge", "winter", "forest", "clock", "music", "harbour", "copper", "island", "mirror", "summer", "valley"),
)
_LOWEST, _STEP = 64, 2  # ranges of lengths that engines pad to begin at 16 tokens; a chat's frame is longer than that
_INSIDE = 0.75  # where in its range a prompt lies, so that a few tokens more or less change nothing
_BESIDE = 1.1
_WARM, _LOOKS = 3, 2
_BATCH_WARM = 2
_BATCH_TOKENS, _FEATURE_TOKENS = 4, 2
_NAMED = 6  # stalls that a sentence lists
_NEW_SHAPES = 2  # fewer that are certainly new say nothing about the others
_NEW_TOKENS = 256  # a server that has computed no more prompt tokens than this has just been started
_FEATURES: Mapping[str, dict[str, Json]] = {
    "logprobs": {"logprobs": True, "top_logprobs": 5},
    "sampled": {"temperature": 1, "top_p": 0.9},
    "json": {"response_format": {"type": "json_object"}},
}


class CompileRecompilationParams(Params):
    """What may be chosen in YAML."""

    longest: int = Field(default=2048, ge=64, le=131072, description="Tokens that no prompt of the ladder exceeds.")
    batches: list[Annotated[int, Field(ge=2, le=256)]] = Field(
        default=[12],
        max_length=6,
        description="So many short requests at once; engines pad batches to 8, 16, 32 …, and 12 are more than 8.",
    )
    features: list[Literal["logprobs", "sampled", "json"]] = Field(
        default=["logprobs", "sampled", "json"], description="What is used for the first time behind the ladder."
    )
    stall_s: float = Field(
        default=1.0, gt=0, le=600, description="Seconds more than usual from which a first use stalls."
    )
    stall_ratio: float = Field(default=5.0, ge=1.5, le=100, description="… and how many times the usual time it takes.")
    patience_s: float = Field(
        default=20.0, gt=0, le=600, description="The ladder ends before a prompt that takes this long without a stall."
    )
    traffic: list[Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(
        default=[],
        description="A sample of traffic as pairs: tokens of a prompt, and how many requests have it (--traffic FILE).",
    )


# --------------------------------------------------------------------------- sending


def _prompt(nonce: str, tokens: int) -> Json:
    """Return a chat whose text has about so many tokens, a word each; the nonce chooses the words in front."""
    lead = [_WORDS[(ord(letter) * 7 + place) % len(_WORDS)] for place, letter in enumerate(nonce[:LEAD])]
    filler = itertools.islice(itertools.cycle(_WORDS), max(0, tokens - LEAD))
    return [{"role": "user", "content": " ".join((*lead, *filler))}]


async def drive(session: Session, params: CompileRecompilationParams, _: Transcript | None) -> None:
    """Lengths, batches and features, each cold and warm; what stalled again; everything once more."""
    climb = _Climb(session, params)
    await session.metrics("metrics-0")
    await climb.control()
    await climb.read()
    await climb.control()
    if not isinstance(reply.chat(session.transcript.exchanges[-1]), reply.Answer):
        return
    for target in _targets(session.transcript, params):
        if _too_slow(session.transcript, params):
            break
        await climb.shape(f"length-{target}", tokens=target)
    for size in params.batches:
        await climb.shape(f"batch-{size}", size=size)
    for name in params.features:
        await climb.shape(f"feature-{name}", more=_FEATURES[name])
    for shape in tuple(climb.known):
        await climb.use(f"again-{shape}", shape)
    await session.metrics("metrics-end")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    tokens: int = 0
    size: int = 1
    more: Mapping[str, Json] = field(default_factory=dict)


class _Climb:
    """Sends the ladder; counts its own steps and decides nothing but whether to look again."""

    def __init__(self, session: Session, params: CompileRecompilationParams) -> None:
        self._session, self._params = session, params
        self._controls = self._reads = 0
        self.known: dict[str, _Recipe] = {}

    async def control(self) -> None:
        """Send a short prompt that is known by now."""
        self._controls += 1
        await self._send(f"control-{self._controls}", _Recipe())

    async def shape(self, name: str, *, tokens: int = 0, size: int = 1, more: Mapping[str, Json] | None = None) -> None:
        """Use a shape for the first time and again."""
        recipe = self.known[name] = _Recipe(tokens=tokens, size=size, more=more or {})
        await self.control()
        await self.read()
        await self.use(f"cold-{name}", name)
        await self.read()
        if not _answered(self._session.transcript, f"cold-{name}"):
            del self.known[name]  # refused or failed: nothing to repeat
            return
        for number in range(1, (_WARM if size == 1 else _BATCH_WARM) + 1):
            await self.use(f"warm-{name}-{number}", name)
        if _is_suspect(self._session.transcript, name, self._params):
            if tokens:
                await self._send(f"beside-{name}", replace(recipe, tokens=round(tokens * _BESIDE)))
                await self.read()
            for number in range(1, _LOOKS + 1):
                await self.control()
                await self.use(f"look-{name}-{number}", name)

    async def use(self, step: str, name: str) -> None:
        """Send a shape once, and read the counters where that took long."""
        await self._send(step, self.known[name])
        if not step.startswith("cold") and _is_late(self._session.transcript, name, self._params):
            await self.read()

    async def read(self) -> None:
        """Read the counters."""
        self._reads += 1
        await self._session.metrics(f"metrics-{self._reads}")

    async def _send(self, step: str, recipe: _Recipe) -> None:
        session = self._session
        tokens = max(0, recipe.tokens - frame_of(session.transcript))
        body: dict[str, Json] = {"temperature": 0, "top_p": 1, "max_tokens": 1}
        if recipe.size > 1 or recipe.more:
            body |= {"max_tokens": _BATCH_TOKENS if recipe.size > 1 else _FEATURE_TOKENS}
        body |= {"stream": True, "stream_options": {"include_usage": True}, **recipe.more}
        if recipe.size == 1:
            await session.chat(step, {"messages": _prompt(session.nonce(), tokens), **body})
            return
        prompts = [_prompt(session.nonce(), tokens) for _ in range(recipe.size)]
        steps = [
            session.chat(f"{step}/{number}", {"messages": messages, **body})
            for number, messages in enumerate(prompts, 1)
        ]
        await session.concurrently(steps, at_once=recipe.size)


# --------------------------------------------------------------------------- reading


def _answered(transcript: Transcript, step: str) -> bool:
    sent = [exchange for exchange in transcript if exchange.step == step or exchange.step.startswith(f"{step}/")]
    return bool(sent) and all(answer_of(exchange) for exchange in sent)


def _targets(transcript: Transcript, params: CompileRecompilationParams) -> Iterator[int]:
    """Yield the lengths of the ladder: three quarters of 64, 128, 256 … tokens, above the control and below limits."""
    said = transcript.fingerprint.value("max_model_len")
    room = int(said) - 2 * LEAD if said and said.isdigit() else params.longest
    # Prompts may come out longer than meant where words are not tokens, and one a tenth longer may follow.
    most = min(params.longest, int(room / _BESIDE))
    top = _LOWEST
    while top * _INSIDE <= most:
        target = int(top * _INSIDE)
        if target > frame_of(transcript) + LEAD:
            yield target
        top *= _STEP


def _is_late(transcript: Transcript, shape: str, params: CompileRecompilationParams) -> bool:
    """Tell whether the last use of a shape took much longer than its quickest one."""
    times = [group.seconds for group in groups_of(transcript) if group.shape == shape]
    if len(times) < 2:
        return False
    return times[-1] - min(times) >= params.stall_s and times[-1] >= params.stall_ratio * min(times)


def _is_suspect(transcript: Transcript, shape: str, params: CompileRecompilationParams) -> bool:
    uses = [use for use in uses_of(transcript, {}) if use.shape == shape]
    return bool(firstuse.read(uses, _limits(params)).stalls)


def _too_slow(transcript: Transcript, params: CompileRecompilationParams) -> bool:
    """Tell whether the next length, twice as long, would take too long even without a stall."""
    rungs = [group for group in groups_of(transcript) if group.shape.startswith("length-") and group.kind == "warm"]
    last = [group.seconds for group in rungs if group.shape == rungs[-1].shape] if rungs else []
    return bool(last) and _STEP * median(last) > params.patience_s


def _limits(params: CompileRecompilationParams) -> Limits:
    return Limits(seconds=params.stall_s, ratio=params.stall_ratio)


# --------------------------------------------------------------------------- judging


def judge(transcript: Transcript, params: CompileRecompilationParams) -> Iterator[Finding]:
    """Judge what first uses cost, and whether it was their first use at all."""
    controls = transcript.steps("control-")
    missing = _PART.unless_answered(_QUICK, reply.chat(controls[-1]) if controls else None, what="a short request")
    if missing is not None:
        yield missing
        return
    counters = counters_of(transcript)
    uses = uses_of(transcript, counters.explained)
    reading = firstuse.read(uses, _limits(params))
    apart = [stall for stall in reading.stalls if stall.use.shape == "feature-json"]
    reading = replace(reading, stalls=tuple(stall for stall in reading.stalls if stall not in apart))
    beside = _beside(transcript, counters, params)
    seen = _Seen(transcript, params, counters, uses, reading, beside, apart)
    if not uses or not reading.shapes:
        yield _unanswered(transcript) or _PART.undetermined(_QUICK, "no shape was tried")
        return
    quick = _first_uses(seen)
    yield quick
    yield _later_uses(seen)
    yield _unanswered(transcript) or _answered_if_new(seen, quick)


def _answered_if_new(seen: _Seen, quick: Finding) -> Finding:
    """Return that new shapes were answered, where it is known that they were new."""
    cold = _cold(seen.transcript)
    if quick.outcome is Outcome.UNDETERMINED:
        return _PART.undetermined(_ANSWERED, quick.why, *cold)
    why = f"{len(cold)} shapes were answered or refused by name"
    return _PART.held(_ANSWERED, why, *cold)


def _unanswered(transcript: Transcript) -> Finding | None:
    """Return what a request of a new shape came to that failed; what is refused by name is not this row's business."""
    for exchange in transcript:
        found = STEP_NAME.fullmatch(exchange.step)
        read = reply.chat(exchange) if found is not None else None
        if found is not None and isinstance(read, reply.Failure):
            return _PART.violated(_ANSWERED, f"{_named(found['shape'])}: {read.what}", exchange)
    return None


def _cold(transcript: Transcript) -> list[Exchange]:
    """Return the first request of each shape; the first one of a batch stands for it."""
    return [exchange for exchange in transcript.steps("cold-") if exchange.step.partition("/")[2] in ("", "1")]


def _refused(transcript: Transcript) -> list[str]:
    """Return the shapes that were refused by name."""
    return [
        _named(found["shape"])
        for exchange in _cold(transcript)
        if (found := STEP_NAME.fullmatch(exchange.step)) and isinstance(reply.chat(exchange), reply.Refusal)
    ]


@dataclass(frozen=True, slots=True)
class _Seen:
    transcript: Transcript
    params: CompileRecompilationParams
    counters: Counters
    uses: list[Use]
    reading: Reading
    beside: list[Stall]
    apart: list[Stall]

    def evidence(self, stalls: Sequence[Stall]) -> list[Exchange]:
        """Return a stalled use and a usual one of its shape for each stall."""
        wanted: list[str] = []
        for stall in stalls:
            usual = min((use for use in self.uses if use.shape == stall.use.shape), key=lambda use: use.seconds)
            wanted += [stall.use.id, usual.id]
        return [exchange for exchange in self.transcript if exchange.id in wanted]

    @property
    def new(self) -> list[str]:
        """The shapes that nobody can have used before, as the server's counters tell."""
        longest = longest_before(self.counters)
        if longest is None:
            return []
        fresh = (total_of(self.counters.before, generated=False) or 0.0) <= _NEW_TOKENS
        tokens = _tokens(self.transcript)
        return [
            shape
            for shape in self.reading.shapes
            if (shape in tokens and tokens[shape] >= _STEP * longest)
            or (fresh and shape.startswith(("batch-", "feature-")))
        ]


def _tokens(transcript: Transcript) -> dict[str, int]:
    """Return how long the prompt of each length was in truth, in tokens."""
    cold = [group for group in groups_of(transcript) if group.kind == "cold" and group.shape.startswith("length-")]
    return {group.shape: group.tokens or int(group.shape.partition("-")[2]) for group in cold}


def _beside(transcript: Transcript, counters: Counters, params: CompileRecompilationParams) -> list[Stall]:
    """Return the prompts a tenth longer than one that stalled which stalled as well: their range is finer."""
    uses = uses_of(transcript, counters.explained)
    found: list[Stall] = []
    for group in groups_of(transcript):
        if group.kind == "beside" and not group.was_cached(frame_of(transcript)):
            ordinary = [use for use in uses if use.shape == group.shape and not use.first]
            first = replace(use_of(group, counters.explained), first=True)
            found += firstuse.read([first, *ordinary], _limits(params)).stalls
    return found


def _named(shape: str) -> str:
    kind, _, which = shape.partition("-")
    if kind == CONTROL:
        return "the shortest prompt"
    if kind == "length":
        return f"{which} tokens"
    return f"{which} at once" if kind == "batch" else f"first use of {which}"


def _figures(seen: _Seen) -> dict[str, float | int | str | bool | None]:
    reading = seen.reading
    low, high = reading.lost_between
    figures: dict[str, float | int | str | bool | None] = {
        "shapes": len(reading.shapes),
        "stalled_shapes": len(reading.stalls),
        "stalled_a_tenth_longer": len(seen.beside),
        "seconds_lost": round(reading.lost + sum(stall.excess for stall in seen.beside), 2),
        "seconds_lost_low": round(low + sum(stall.low for stall in seen.beside), 2),
        "seconds_lost_high": round(high + sum(stall.high for stall in seen.beside), 2),
        "stalls_on_later_use": len(reading.again),
        "ordinary_stalls": len(reading.noise),
        "explained_stalls": len(reading.explained),
        "chance": float(f"{reading.chance:.2g}"),
        "other_users_tokens": seen.counters.others if seen.counters.usable else None,
    }
    for shape in reading.shapes:
        mine = [use for use in seen.uses if use.shape == shape]
        later = [use.seconds for use in mine if not use.first]
        key = shape.replace("-", "_")
        figures[f"cold_{key}_s"] = next((round(use.seconds, 3) for use in mine if use.first), None)
        if later:
            figures |= {f"warm_{key}_s": round(median(later), 3)}
            figures |= {f"warm_{key}_min_s": round(min(later), 3), f"warm_{key}_max_s": round(max(later), 3)}
    return figures | _share(seen)


def _share(seen: _Seen) -> dict[str, float | int | str | bool | None]:
    """Return which share of the sample of traffic has a length that stalled; a length counts down to the one below."""
    total = sum(count for _, count in seen.params.traffic)
    tokens = _tokens(seen.transcript)
    if not total or not tokens:
        return {}
    stalled = {stall.use.shape for stall in seen.reading.stalls}
    hit = beyond = 0
    ladder = sorted(tokens.items(), key=lambda item: item[1])
    for length, count in seen.params.traffic:
        # A range ends at a power of two, which is a third above the length that was tried in it.
        shape = next((name for name, tried in ladder if length <= tried / _INSIDE), None)
        hit += count if shape in stalled else 0
        beyond += count if shape is None else 0
    share = stats.wilson(hit, total)
    return {
        "traffic_requests": total,
        "traffic_of_stalled_lengths": hit,
        "traffic_share": round(hit / total, 4),
        "traffic_share_low": round(share.low, 4),
        "traffic_share_high": round(share.high, 4),
        "traffic_longer_than_tried": beyond,
    }


def _first_uses(seen: _Seen) -> Finding:
    reading, figures = seen.reading, _figures(seen)
    tried = len(reading.shapes) - len(reading.unmeasured)
    if reading.stalls:
        lost = figures["seconds_lost"]
        why = f"{len(reading.stalls)} of {tried} shapes stalled at their first use: {_list(reading.stalls)}"
        why += (
            f"; {lost:g} s lost ({figures['seconds_lost_low']:g} to {figures['seconds_lost_high']:g})"
            + _granularity(seen)
        )
        why += _of_traffic(figures) + _asides(seen)
        return _PART.violated(_QUICK, why, *seen.evidence([*reading.stalls, *seen.beside]), **figures)
    if reading.unsettled:
        worst = max(stall.excess for stall in reading.noise)
        why = f"{_list(reading.unsettled)} at first use, but ordinary requests stalled too, by up to {worst:.1f} s: "
        why += "noise or not, nobody can tell" + _asides(seen)
        return _PART.undetermined(_QUICK, why, *seen.evidence(reading.unsettled), **figures)
    cold = _cold(seen.transcript)
    new = seen.new
    said = f"{tried} shapes: no first use took {seen.params.stall_s:g} s longer than later ones"
    if len(new) >= _NEW_SHAPES:
        why = f"{said}; {len(new)} of them were certainly new" + _asides(seen)
        return _PART.held(_QUICK, why, *cold, **figures)
    return _PART.undetermined(
        _QUICK, f"cold shapes not observable: {_why_warm(seen)}; {said}" + _asides(seen), *cold, **figures
    )


def _why_warm(seen: _Seen) -> str:
    if not seen.counters.usable:
        return "no counters tell whether the server is new"
    total = total_of(seen.counters.before, generated=False) or 0
    return f"the server had computed {total:.0f} prompt tokens before, and may have met them all; ask one just started"


def _told(stall: Stall) -> str:
    return f"{_named(stall.use.shape)} {stall.use.own:.1f} s (usually {stall.usual:.2f} s)"


def _list(stalls: Sequence[Stall]) -> str:
    listed = ", ".join(_told(stall) for stall in stalls[:_NAMED])
    return listed if len(stalls) <= _NAMED else f"{listed} and {len(stalls) - _NAMED} more"


def _granularity(seen: _Seen) -> str:
    looked = [group for group in groups_of(seen.transcript) if group.kind == "beside"]
    if not looked:
        return ""
    if seen.beside:
        return (
            f"; {len(seen.beside)} of {len(looked)} prompts a tenth longer stalled too, so shapes are finer than that"
        )
    return "; prompts a tenth longer did not stall"


def _of_traffic(figures: Mapping[str, float | int | str | bool | None]) -> str:
    if "traffic_share" not in figures:
        return ""
    share, low, high = (100 * float(figures[f"traffic_share{end}"] or 0) for end in ("", "_low", "_high"))
    beyond = figures["traffic_longer_than_tried"]
    longer = f", {beyond} are longer than what was tried" if beyond else ""
    sampled = f"{figures['traffic_requests']} sampled requests are so long{longer}"
    return f"; {share:.0f} % ({low:.0f} to {high:.0f}) of {sampled}"


def _asides(seen: _Seen) -> str:
    """Return in words what was set aside and why."""
    reading = seen.reading
    said: list[str] = []
    if seen.apart:
        stall = seen.apart[0]
        said.append(f"the first JSON answer took {stall.excess:.1f} s more, a grammar's set-up or a shape, not counted")
    if reading.explained:
        because = " and ".join(dict.fromkeys(stall.use.because for stall in reading.explained))
        said.append(f"slow answers explained by {because}: {len(reading.explained)}")
    frame = frame_of(seen.transcript)
    cached = sum(group.was_cached(frame) for group in groups_of(seen.transcript))
    if cached:
        said.append(f"answers from the prefix cache, left out: {cached}")
    if reading.noise:
        said.append(f"ordinary requests that stalled too: {len(reading.noise)}")
    refused = _refused(seen.transcript)
    if refused:
        said.append(f"refused: {', '.join(refused)}")
    if reading.unmeasured:
        said.append(f"not comparable: {', '.join(_named(shape) for shape in reading.unmeasured)}")
    if reading.stalls and not seen.counters.usable:
        said.append("no counters were there to exclude other users")
    return "".join(f"; {each}" for each in said)


def _later_uses(seen: _Seen) -> Finding:
    reading = seen.reading
    again = [stall for stall in reading.again if stall.use.shape != "feature-json"]
    swept = {exchange.id for exchange in seen.transcript.steps("again-")}
    if not swept:
        return _PART.undetermined(_STAYS, "the shapes were not sent a second time")
    if again:
        late = sum(stall.use.id in swept for stall in again)
        why = f"{len(again)} more stalls as long at shapes used before, {late} of them in the second sweep: "
        why += f"{_list(again)}; as where each of several replicas compiles for itself, or where a compiled shape is "
        why += "dropped"
        return _PART.violated(_STAYS, why, *seen.evidence(again), stalls=len(again), in_second_sweep=late)
    first = next(exchange for exchange in seen.transcript if exchange.id in swept)
    return _PART.held(_STAYS, f"a second sweep of {len(reading.shapes)} shapes had no stall of that kind", first)


PROBE = Probe(
    id="compile_recompilation",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_QUICK,
            rule="The first request of a new shape takes no longer than the next ones of the same shape.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_STAYS,
            rule="A shape that was used before does not stall again.",
            level=Level.SHOULD,
            source=_SOURCE,
        ),
        Check(
            id=_ANSWERED,
            rule="A request of a new shape is answered, or refused by name.",
            level=Level.MUST,
            source="https://platform.openai.com/docs/guides/error-codes",
        ),
    ),
    params=CompileRecompilationParams,
    drive=drive,
    judge=judge,
    risk=Risk.LOAD,
    exclusive=True,
    first_use=True,
    requests=128,
    prompt_tokens=16840,
    output_tokens=260,
)
