"""The uses of shapes in a transcript of the ladder, and what the server's counters explain of them; it judges nothing.

Steps are named ``cold-length-96``, ``warm-length-96-1``, ``look-…``, ``again-…``, ``beside-…`` and ``control-3``; the
requests of a batch have ``/1``, ``/2`` … behind that. What is neither sent by the ladder nor answered is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from servecheck.firstuse import Use
from servecheck.model import Exchange, Transcript
from servecheck.probes._streams import bodies
from servecheck.read import reply
from servecheck.read.metrics import Metrics, metrics
from servecheck.read.series import CONTRACTS, spellings

__all__ = [
    "CONTROL",
    "LEAD",
    "STEP_NAME",
    "Counters",
    "Group",
    "answer_of",
    "counters_of",
    "frame_of",
    "groups_of",
    "longest_before",
    "total_of",
    "use_of",
    "uses_of",
]

LEAD = 8  # random words in front: no two prompts share a block of any cache
_FRAME = 40  # tokens around a chat's text, where usage does not say
_QUEUE = (
    "vllm:request_queue_time_seconds_sum",
    "ray_vllm_request_queue_time_seconds_sum",
    "sglang:queue_time_seconds_sum",
)
_LENGTHS = ("vllm:request_prompt_tokens_bucket", "ray_vllm_request_prompt_tokens_bucket")
_SAFE = 1.5  # another user's token may cost more than ours
_SLACK = 32  # tokens by which counters may differ from usage before others' requests are suspected
STEP_NAME = re.compile(
    r"(?P<kind>cold|warm|look|again|beside)-(?P<shape>(?:length|batch|feature)-[a-z0-9]+)(?:-[0-9]+)?(?:/[0-9]+)?"
)


def answer_of(exchange: Exchange) -> reply.Answer | None:
    """Return a reply as an answer, ``None`` where it is none."""
    read = reply.chat(exchange)
    return read if isinstance(read, reply.Answer) else None


def _prompt_tokens(exchange: Exchange) -> int | None:
    answer = answer_of(exchange)
    return answer.usage.prompt if answer and answer.usage else None


def _seconds(exchange: Exchange) -> float:
    """Return when the last event came: a proxy may keep the connection open behind it."""
    events = bodies(exchange)
    return events[-1].at if events else exchange.ended_at


def frame_of(transcript: Transcript) -> int:
    """Return the tokens that the chat's frame adds, as the first control shows."""
    first = transcript.get("control-1")
    said = _prompt_tokens(first) if first is not None else None
    return max(0, said - LEAD) if said is not None else _FRAME


@dataclass(slots=True)
class Group:
    """The exchanges of one use: one, or all of a batch."""

    kind: str
    shape: str
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return max(_seconds(exchange) for exchange in self.exchanges)

    @property
    def tokens(self) -> int | None:
        counts = [_prompt_tokens(exchange) for exchange in self.exchanges]
        return counts[0] if len(counts) == 1 else None

    def was_cached(self, frame: int) -> bool:
        """Whether a prompt came from the cache; its frame, which all chats share, may (24 tokens on two engines)."""
        usages = [answer.usage for exchange in self.exchanges if (answer := answer_of(exchange)) and answer.usage]
        return any(
            (usage.cached or 0) * 2 > (usage.prompt or 0) and (usage.cached or 0) > frame + LEAD // 2
            for usage in usages
            if usage.prompt
        )


CONTROL = "control"


def groups_of(transcript: Transcript) -> list[Group]:
    """Return all answered uses in sending order; a batch of which one failed is left out."""
    made: dict[str, Group] = {}
    failed: set[str] = set()
    for exchange in {exchange.step: exchange for exchange in transcript}.values():
        name = exchange.step.partition("/")[0]
        found = STEP_NAME.fullmatch(exchange.step)
        if found is not None:
            group = made.setdefault(name, Group(found["kind"], found["shape"]))
        elif name.startswith("control-"):
            group = made.setdefault(name, Group(CONTROL, CONTROL))
        else:
            continue
        group.exchanges.append(exchange)
        if answer_of(exchange) is None:
            failed.add(name)
    return [group for name, group in made.items() if name not in failed]


@dataclass(frozen=True, slots=True)
class _Because:
    """Seconds of a use that the server's counters explain."""

    seconds: float
    why: str


def uses_of(transcript: Transcript, explained: Mapping[str, _Because]) -> list[Use]:
    """Return the uses that can be compared: no prompts that were cached, and none that a tenth was added to."""
    frame = frame_of(transcript)
    groups = [group for group in groups_of(transcript) if group.kind != "beside" and not group.was_cached(frame)]
    return [use_of(group, explained) for group in groups]


def use_of(group: Group, explained: Mapping[str, _Because]) -> Use:
    first = group.exchanges[0]
    because = explained.get(first.id, _Because(0.0, ""))
    return Use(
        id=first.id,
        shape=group.shape,
        seconds=group.seconds,
        first=group.kind == "cold" or first.step == "control-1",
        explained=because.seconds,
        because=because.why,
    )


# --------------------------------------------------------------------------- counters


@dataclass(slots=True)
class Counters:
    """What the server's counters say between two reads; ``usable`` is false where they are absent or went backwards."""

    usable: bool = False
    before: Metrics = field(default_factory=Metrics)
    explained: dict[str, _Because] = field(default_factory=dict)
    others: int = 0


def total_of(read: Metrics, generated: bool) -> float | None:
    for contract in CONTRACTS:
        found = read.total(*spellings(contract.generated if generated else contract.prompt))
        if found is not None:
            return found
    return None


def counters_of(transcript: Transcript) -> Counters:
    """Return which uses others' requests or the server's queue explain.

    Engines may count a request only after its reply, so what counters lack of our own tokens is carried on: others are
    seen where the whole since the start is more than all of ours.
    """
    groups = {group.exchanges[0].id: group for group in groups_of(transcript)}
    found = Counters()
    last: tuple[float, float, float] | None = None
    start = (0.0, 0.0)
    ours = [0, 0]
    most = [0.0, 0.0]
    since: list[Group] = []
    costs = _costs(transcript)
    for exchange in transcript:
        answer = answer_of(exchange) if exchange.method == "POST" else None
        if answer is not None and answer.usage is not None:
            ours[0] += answer.usage.prompt or 0
            ours[1] += answer.usage.completion or 0
        if exchange.id in groups:
            since.append(groups[exchange.id])
        if not exchange.step.startswith("metrics-"):
            continue
        read = metrics(exchange)
        prompt, generated = total_of(read, generated=False), total_of(read, generated=True)
        if prompt is None or generated is None:
            return Counters()
        queue = read.total(*_QUEUE) or 0.0
        if last is None:
            found.usable, found.before, start = True, read, (prompt, generated)
        elif prompt < last[0] or generated < last[1] or queue < last[2]:
            return Counters()  # several servers behind one address, or one that was restarted
        else:
            more = [prompt - start[0] - ours[0], generated - start[1] - ours[1]]
            step = [max(0.0, now - before - _SLACK) for now, before in zip(more, most, strict=True)]
            most = [max(now, before) for now, before in zip(more, most, strict=True)]
            found.others += round(sum(step))
            _explain(found.explained, since, step, queue - last[2], costs)
        last = (prompt, generated, queue)
        since = []
    return found


def _costs(transcript: Transcript) -> tuple[float, float]:
    """Return what a prompt token and a generated token of another user can cost us, in seconds, on the safe side."""
    warm = [group for group in groups_of(transcript) if group.kind == "warm" and group.tokens]
    lengths = [group for group in warm if group.shape.startswith("length-")]
    prompt = min((group.seconds / (group.tokens or 1) for group in lengths), default=0.0)
    controls = [group.seconds for group in groups_of(transcript) if group.kind == CONTROL]
    return _SAFE * prompt, median(controls) if controls else 0.0


def _explain(
    explained: dict[str, _Because],
    since: Sequence[Group],
    others: Sequence[float],
    queued: float,
    costs: tuple[float, float],
) -> None:
    theirs = sum(tokens * cost for tokens, cost in zip(others, costs, strict=True))
    for group in since:
        # Those of one batch wait for each other: the sum of their waits says nothing of others.
        waited = queued if len(group.exchanges) == 1 else 0.0
        if theirs <= 0 and waited <= 0:
            continue
        why = "the server's own queue" if waited >= theirs else "other users' requests"
        explained[group.exchanges[0].id] = _Because(max(theirs, waited), why)


def longest_before(counters: Counters) -> float | None:
    """Return a length that no prompt exceeded before this case, as the counters tell; ``None`` where they do not."""
    if not counters.usable:
        return None
    total = total_of(counters.before, generated=False)
    bounds: dict[float, float] = {}
    for sample in counters.before.samples:
        if sample.name in _LENGTHS:
            bound = float(sample.labels.get("le", "inf").replace("+Inf", "inf"))
            bounds[bound] = bounds.get(bound, 0.0) + sample.value
    most = max(bounds.values(), default=None)
    longest = min((bound for bound, count in bounds.items() if count == most), default=None)
    known = [value for value in (total, longest) if value is not None]
    return min(known) if known else None
