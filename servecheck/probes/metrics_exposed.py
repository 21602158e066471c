"""The engine's metrics can be read, have the names that others rely on, and move with our requests.

What it does: reads ``/metrics``, asks for a short answer, and reads again until the token counters have moved (a few
seconds at most). Compares the names with what the engine's release exposes; a series under its older name, or as Ray
republishes it, counts as there. Then hangs up on a stream, and sees whether the engine's count of aborted requests, if
it has one, knows of it.

Why it matters: routers balance and autoscalers scale by these names; a renamed gauge reads as "no load" and nothing
reports an error.

How it could be fooled: by metrics of another replica than the one that answered; by other users' traffic, which can
only add to counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic import Field

from servecheck import canary
from servecheck.model import Check, Ending, Exchange, Finding, Json, Level, Mode, Route, Transcript
from servecheck.probe import Params, Probe, Session
from servecheck.probes._findings import Part
from servecheck.read import reply
from servecheck.read.metrics import Metrics, metrics
from servecheck.read.series import Contract, Series, contract_of, spellings

__all__ = ["PROBE"]

_PART = Part(route=Route.NONE, mode=Mode.NONE)
_READABLE, _KEY, _MORE, _MOVE = (
    "metrics-can-be-read",
    "steering-series-are-there",
    "promised-series-are-there",
    "token-counters-move-with-requests",
)
_TYPED = "metrics-come-in-a-type-that-is-scraped"
_SCRAPED = ("text/plain", "application/openmetrics-text", "application/vnd.google.protobuf")
_ABORTS = "aborted-requests-are-counted"
_LEFT_TOKENS = 512
_WAITS = (0.3, 1.0, 2.0, 5.0)  # measured: exact after 0.3 s on two engines; some update once per log line
_SOURCE = "https://prometheus.io/docs/instrumenting/exposition_formats/"
_ROUTERS = (
    "https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/main/docs/proposals/"
    "003-model-server-protocol"
)


class MetricsExposedParams(Params):
    """What may be chosen in YAML."""

    max_tokens: int = Field(default=24, ge=1, le=1024, description="Room for the answer that the counters must count.")


async def drive(session: Session, params: MetricsExposedParams, _: Transcript | None) -> None:
    """Read, ask, read until the counters have moved."""
    before = await session.metrics("before")
    if before.status != 200:
        return
    path, body = canary.request(session.endpoint.kind or "chat")
    body = _new(body, session.unseen())
    if "max_tokens" in body:
        body["max_tokens"] = params.max_tokens
    await session.post("answer", path, body)
    for number, seconds in enumerate(_WAITS, start=1):
        await session.wait(seconds)
        await session.metrics(f"after-{number}")
        if not _shortfalls(session.transcript):
            break
    last = session.transcript.steps("after-")
    if (session.endpoint.kind or "chat") == "chat" and last and _aborts(metrics(last[-1])) is not None:
        await _leave(session)


def _new(body: dict[str, Json], word: str) -> dict[str, Json]:
    """Return a plain request with a word that nobody has sent: a gateway's cache of replies computes nothing twice."""
    messages: Json = [{"role": "user", "content": f"What is the capital of France? ({word})"}]
    new: dict[str, Json] = {
        "messages": messages,
        "prompt": f"{word}. The capital of France is",
        "input": f"The quick brown fox {word}.",
        "query": f"A quick fox {word}.",
    }
    return {key: new.get(key, value) for key, value in body.items()}


async def _leave(session: Session) -> None:
    """Hang up on a stream, and read until it is counted."""
    messages: Json = [{"role": "user", "content": f"Tell me a long story about a lighthouse. ({session.unseen()})"}]
    body: Json = {"messages": messages, "max_tokens": _LEFT_TOKENS, "stream": True}
    await session.abort_after("left", "/chat/completions", body, events=3)
    for number, seconds in enumerate(_WAITS, start=1):
        await session.wait(seconds)
        await session.metrics(f"left-after-{number}")
        if _counted(session.transcript):
            return


def _aborts(read: Metrics) -> float | None:
    """Return how many requests were aborted by the engine's own count, ``None`` where it has no such series."""
    own = read.total(*spellings(("sglang:num_aborted_requests_total",)))
    if own is not None:
        return own
    names = spellings(("vllm:request_success_total",))
    found = [
        sample.value
        for sample in read.samples
        if sample.name in names and sample.labels.get("finished_reason") == "abort"
    ]
    return sum(found) if found else None


def _counted(transcript: Transcript) -> bool:
    """Tell whether the count of aborts grew after we hung up."""
    before, after = transcript.steps("after-"), transcript.steps("left-after-")
    if not before or not after:
        return False
    return (_aborts(metrics(after[-1])) or 0.0) > (_aborts(metrics(before[-1])) or 0.0)


def _reads(transcript: Transcript) -> tuple[Metrics, Metrics] | None:
    """Return the first and the last read, ``None`` where there are no two."""
    before, after = transcript.get("before"), transcript.steps("after-")
    return (metrics(before), metrics(after[-1])) if before is not None and after else None


def _usage(transcript: Transcript) -> reply.Usage | None:
    """Return the usage of the answer; of an embedding only the prompt."""
    exchange = transcript.get("answer")
    body = reply.json_body(exchange) if exchange is not None else None
    return None if isinstance(body, reply.Refusal | reply.Failure) else reply.usage_of(body)


def _moves(transcript: Transcript) -> list[tuple[Series, float | None, float | None, int]]:
    """Return each token counter before and after, with the least by which it must have grown."""
    reads, usage = _reads(transcript), _usage(transcript)
    if reads is None or usage is None:
        return []
    before, after = reads
    contract = contract_of(after, transcript.fingerprint)
    if contract is None:
        return []
    prompt = (usage.prompt or 1) if contract.counts_cached else 1
    wanted = [(contract.prompt, prompt)] + ([(contract.generated, usage.completion)] if usage.completion else [])
    return [
        # A counter that nothing has moved yet may be absent, which is zero.
        (series, before.total(*spellings(series)) or 0.0, after.total(*spellings(series)), least)
        for series, least in wanted
    ]


def _shortfalls(transcript: Transcript) -> list[str]:
    """Return what is wrong with the counters' moves, in words; empty where all moved enough."""
    found = []
    for series, before, after, least in _moves(transcript):
        if after is None:
            continue
        grown = after - (before or 0.0)
        if not math.isfinite(grown):
            found.append(f"{series[0]} went from {before:g} to {after:g}")
        elif grown < 0:
            found.append(f"{series[0]} fell from {before:g} to {after:g}")
        elif grown < least:
            found.append(f"{series[0]} grew by {grown:g}, our request alone took {least}")
    return found


def _typed(read: Exchange) -> Finding:
    headers = {name.lower(): value for name, value in read.response_headers}
    named = headers.get("content-type", "").partition(";")[0].strip().lower()
    if named in _SCRAPED:
        return _PART.held(_TYPED, f"content-type is {named}", read)
    why = f"content-type is {named or 'left out'}: Prometheus 3 takes {' or '.join(_SCRAPED[:2])} only"
    return _PART.violated(_TYPED, why, read)


def judge(transcript: Transcript, _: MetricsExposedParams) -> Iterator[Finding]:
    """Judge the first read by itself, the names by the last, the counters by both."""
    first = transcript.get("before")
    if first is None:
        yield _PART.undetermined(_READABLE, "nothing was read")
        return
    missing = reply.not_answered(first)
    if isinstance(missing, reply.Refusal):
        why = f"not offered: {first.url} says {missing.what}{_hidden(transcript)}"
        yield _PART.refused(_READABLE, why, first)
        return
    if isinstance(missing, reply.Failure):
        yield _PART.violated(_READABLE, missing.what, first)
        return
    seen = [first, *transcript.steps("after-")]
    latest = metrics(seen[-1])
    problem = next((read.problem for read in (metrics(first), latest) if read.problem), "")
    if problem or not latest.samples:
        yield _PART.violated(_READABLE, problem or "200, and not a single sample", *seen)
        return
    yield _PART.held(_READABLE, f"{len(latest.samples)} samples of {len(latest.names)} names", *seen)
    yield _typed(first)
    contract = contract_of(latest, transcript.fingerprint)
    if contract is None:
        yield _PART.undetermined(_KEY, "no engine is identified, and no series of a known one is there", *seen)
        return
    yield from _names(contract, latest, seen)
    yield from _counters(transcript, seen)
    yield from _hang_ups(transcript)


def _hidden(transcript: Transcript) -> str:
    """Say where else the metrics may be, where a gateway stands before the engine or nothing tells the engine."""
    gateway = transcript.fingerprint.value("gateway")
    if gateway is None and transcript.fingerprint.value("engine") is not None:
        return ""
    who = f"a gateway ({gateway}) hides" if gateway is not None else "a gateway may hide"
    return f"; {who} the engine's own (give the engine's address as metrics_url)"


def _names(contract: Contract, latest: Metrics, seen: list[Exchange]) -> Iterator[Finding]:
    every = (*contract.steering, *contract.more)
    if len(contract.missing(latest, every)) == len(every):
        why = f"not offered: {len(latest.names)} names, and none is {contract.engine}'s; a gateway may hide them"
        yield _PART.refused(_KEY, f"{why} (give the engine's own address as metrics_url)", *seen)
        return
    for check, wanted in ((_KEY, contract.steering), (_MORE, contract.more)):
        missing = contract.missing(latest, wanted)
        if missing:
            why = f"{', '.join(missing)} missing; {contract.read_in} has {'it' if len(missing) == 1 else 'them'}"
            yield _PART.violated(check, why, *seen)
            continue
        renamed = _other_names(latest, wanted)
        why = f"all {len(wanted)} series of {contract.read_in}"
        yield _PART.held(check, why + (f"; by other names: {', '.join(renamed)}" if renamed else ""), *seen)


def _other_names(latest: Metrics, wanted: tuple[Series, ...]) -> list[str]:
    """Return the names by which series are there, where that is not the current one."""
    names = [next(name for name in spellings(series) if name in latest.names) for series in wanted]
    return [name for name, series in zip(names, wanted, strict=True) if name != series[0]]


def _counters(transcript: Transcript, seen: list[Exchange]) -> Iterator[Finding]:
    answer = transcript.get("answer")
    moves = [move for move in _moves(transcript) if move[2] is not None]
    if answer is None or not moves:
        why = "no usage to compare the counters with" if _usage(transcript) is None else "no token counters to look at"
        yield _PART.undetermined(_MOVE, why, *seen)
        return
    said = ", ".join(
        f"{series[0]} +{(after or 0) - (before or 0):g} (ours {least})" for series, before, after, least in moves
    )
    problems = _shortfalls(transcript)
    if not problems:
        yield _PART.held(_MOVE, said, *seen, answer)
    elif urlsplit(seen[0].url).netloc != urlsplit(answer.url).netloc:
        why = f"{'; '.join(problems)}; but metrics and answers have different addresses, perhaps different replicas"
        yield _PART.undetermined(_MOVE, why, *seen, answer)
    else:
        waited = sum(_WAITS[: len(seen) - 1])
        yield _PART.violated(_MOVE, f"{'; '.join(problems)} ({waited:.1f} s later)", *seen, answer)


def _hang_ups(transcript: Transcript) -> Iterator[Finding]:
    """Judge the count of aborts, where there is one and a stream was left; others' aborts can only hide the fault."""
    left, before, after = transcript.get("left"), transcript.steps("after-"), transcript.steps("left-after-")
    if left is None or not before or not after or left.ending is not Ending.ABORTED:
        return
    first, last = _aborts(metrics(before[-1])), _aborts(metrics(after[-1]))
    if first is None or last is None or urlsplit(before[-1].url).netloc != urlsplit(left.url).netloc:
        return
    seen = (before[-1], left, after[-1])
    said = f"{first:g} aborted requests before we hung up on a stream, {last:g} afterwards"
    if _counted(transcript):
        yield _PART.held(_ABORTS, said, *seen)
    else:
        yield _PART.violated(_ABORTS, f"{said} ({sum(_WAITS[: len(after)]):.1f} s later)", *seen)


PROBE = Probe(
    id="metrics_exposed",
    doc=__doc__ or "",
    checks=(
        Check(
            id=_READABLE,
            rule="The metrics route answers with text in Prometheus' format.",
            level=Level.MUST,
            source=_SOURCE,
        ),
        Check(
            id=_KEY,
            rule="The series that routers and autoscalers go by are there, by the engine's names.",
            level=Level.MUST,
            source=_ROUTERS,
        ),
        Check(
            id=_MORE,
            rule="The series that the engine's documentation promises for dashboards are there.",
            level=Level.SHOULD,
            source="https://docs.vllm.ai/en/latest/usage/metrics/",
        ),
        Check(
            id=_TYPED,
            rule="Metrics come with a content type by which Prometheus reads them.",
            level=Level.SHOULD,
            source="https://prometheus.io/docs/prometheus/latest/migration/#scrape-protocols",
        ),
        Check(
            id=_MOVE,
            rule="Within ten seconds the token counters grow by at least the tokens of our own request.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/usage/metrics/",
        ),
        Check(
            id=_ABORTS,
            rule="Where aborted requests are counted, a stream that the client left is among them.",
            level=Level.SHOULD,
            source="https://github.com/vllm-project/vllm/issues/31503",
        ),
    ),
    params=MetricsExposedParams,
    drive=drive,
    judge=judge,
    requests=5,
    prompt_tokens=50,
    output_tokens=11,
)
