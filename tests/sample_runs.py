"""Fixed runs for the tests of reports, built by hand from the vocabulary: no runner, no judge, no clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime

from servecheck.declared import beside, read_csv
from servecheck.known_issues import KnownIssue
from servecheck.model import (
    Cell,
    Check,
    Chunk,
    Comparison,
    Decision,
    Delta,
    Ending,
    Endpoint,
    Exchange,
    Fault,
    FaultKind,
    Feature,
    Finding,
    Fingerprint,
    GroupTally,
    How,
    Kind,
    Known,
    Level,
    Mode,
    Outcome,
    Status,
    Verdict,
)
from servecheck.report.data import Cost, InstrumentCheck, RunReport, Subject
from servecheck.schema.known_issues_v1 import Confidence

S = Status

FEATURES = (
    Feature(id="health.ready", title="Health tells the truth", question="Does /health agree with a chat?", core=True),
    Feature(id="chat.basic", title="Plain chat", question="Does a plain chat come back whole?", core=True),
    Feature(id="chat.n", title="Several choices", question="Does n give several choices?", core=False),
    Feature(id="streaming.frames", title="Frames", question="Is a stream well formed?", core=True),
    Feature(id="streaming.usage", title="Usage", question="Does a stream report its usage?", core=True),
    Feature(
        id="sampling.greedy",
        title="Greedy repeats",
        question="Is greedy output repeatable?",
        core=False,
        kind=Kind.PROPERTY,
    ),
    Feature(id="sampling.top_p", title="top_p", question="Does top_p shape the output?", core=True),
    Feature(id="sampling.logit_bias", title="logit_bias", question="Does logit_bias ban a token?", core=True),
    Feature(
        id="structured.json_schema",
        title="JSON schema",
        question="Does response_format json_schema shape the answer?",
        core=True,
    ),
    Feature(id="structured.stream", title="JSON schema, streamed", question="And when streamed?", core=True),
    Feature(id="tools.auto", title="Tool choice auto", question="Does the model get to call a tool?", core=True),
    Feature(
        id="parity.logprobs",
        title="Logprob parity",
        question="Are the logprobs those of the reference?",
        core=False,
        kind=Kind.COMPARISON,
    ),
    Feature(
        id="quantization.identity",
        title="Quantization",
        question="What precision is really served?",
        core=False,
        kind=Kind.PROPERTY,
    ),
    Feature(id="audio.transcribe", title="Transcription", question="Does a clip come back as text?", core=False),
)

OPENAI = "https://platform.openai.com/docs/api-reference/chat"
CHECKS = {
    check.id: check
    for check in (
        Check(
            id="stream-ends-with-done",
            rule="A stream ends with exactly one data: [DONE].",
            level=Level.MUST,
            source=f"{OPENAI}-streaming",
        ),
        Check(
            id="usage-in-last-chunk",
            rule="With include_usage, one last chunk without choices carries the usage.",
            level=Level.MUST,
            source=f"{OPENAI}/create#chat-create-stream_options",
        ),
        Check(
            id="schema-applied",
            rule="With response_format json_schema the answer validates against the schema.",
            level=Level.MUST,
            source="https://docs.vllm.ai/en/latest/features/structured_outputs.html",
        ),
        Check(
            id="top-p-narrows",
            rule="A top_p close to 0 leaves only the most likely token.",
            level=Level.MUST,
            source=f"{OPENAI}/create#chat-create-top_p",
        ),
        Check(
            id="model-is-listed",
            rule="The reply names the model that was asked for, or a listed alias.",
            level=Level.SHOULD,
            source=f"{OPENAI}/object",
        ),
    )
}

SCHEMA = {"type": "object", "required": ["code"], "properties": {"code": {"type": "string", "enum": ["qzvbtrmkwh"]}}}


def chat_exchange(
    id_: str, step: str, url: str, request: dict[str, object], reply: bytes, *, status: int | None = 200, **more: object
) -> Exchange:
    """Return an exchange of a non-streamed chat."""
    return replace(
        Exchange(
            id=id_,
            step=step,
            method="POST",
            url=f"{url}/chat/completions",
            request_headers=(("content-type", "application/json"),),
            request_body=json.dumps(request).encode(),
            sent=12.5,
            status=status,
            response_headers=(("content-type", "application/json"),),
            headers_at=0.41,
            chunks=(Chunk(0.412, reply),) if reply else (),
            ended_at=0.413,
        ),
        **more,  # type: ignore[arg-type]
    )


def fake_curl(exchange: Exchange) -> str:
    """Stand in for the real renderer: one option a line, the body as it was sent."""
    body = exchange.request_body.decode("utf-8", "backslashreplace")
    return f"curl -sS -X {exchange.method} {exchange.url} \\\n  -H 'content-type: application/json' \\\n  -d '{body}'"


def finding(check: str, outcome: Outcome, why: str, *evidence: str, **more: object) -> Finding:
    """Return a finding with its evidence."""
    return replace(Finding(check=check, outcome=outcome, why=why, evidence=evidence), **more)  # type: ignore[arg-type]


def judged(feature: str, endpoint: str, status: Status, reason: str = "", **more: object) -> Cell:
    """Return a judged cell with one trial, held by one finding where it is supported."""
    trials = (status,) if status is not S.SKIPPED else ()
    return replace(
        Cell(feature=feature, endpoint=endpoint, status=status, reason=reason, trials=trials),
        **more,  # type: ignore[arg-type]
    )


def green(feature: str, endpoint: str, check: str = "model-is-listed", evidence: str = "x0001") -> Cell:
    """Return a supported cell with evidence."""
    held = finding(check, Outcome.HELD, "model is tiny-chat", evidence, scenario=f"{feature}-scenario")
    return judged(feature, endpoint, S.SUPPORTED, "every check held", findings=(held,))


GPU = Subject(
    endpoint=Endpoint(name="gpu", base_url="http://gpu.example:8000/v1", model="tiny-chat", reference=True),
    fingerprint=Fingerprint(
        fields={
            "engine": Known(value="vllm", how=How.OBSERVED, source="/version"),
            "engine_version": Known(value="0.11.2", how=How.OBSERVED, source="/version"),
            "model": Known(value="tiny-chat", how=How.OBSERVED, source="/v1/models"),
            "precision": Known(value="bfloat16", how=How.DECLARED, source="endpoints.yaml"),
            "quantization": Known(value=None, how=How.UNKNOWN),
            "device": Known(value="NVIDIA L4", how=How.DECLARED, source="endpoints.yaml"),
            "max_model_len": Known(value="8192", how=How.OBSERVED, source="/v1/models"),
        }
    ),
)
TPU = Subject(
    endpoint=Endpoint(name="tpu", base_url="http://tpu.example:8000/v1", model="tiny-chat"),
    fingerprint=Fingerprint(
        fields={
            "engine": Known(value="vllm", how=How.OBSERVED, source="/version"),
            "engine_version": Known(value="0.12.0", how=How.OBSERVED, source="/version"),
            "model": Known(value="tiny-chat", how=How.OBSERVED, source="/v1/models"),
            "precision": Known(value=None, how=How.UNKNOWN),
            "quantization": Known(value=None, how=How.UNKNOWN),
            "device": Known(value="TPU v6e-1", how=How.DECLARED, source="endpoints.yaml"),
            "max_model_len": Known(value="8192", how=How.OBSERVED, source="/v1/models"),
        }
    ),
)


def exchanges() -> dict[str, Exchange]:
    """Return the exchanges that the sample cells name as evidence."""
    gpu, tpu = GPU.endpoint.base_url, TPU.endpoint.base_url
    plain = {"model": "tiny-chat", "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}
    poem = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": "Write a short poem about the sea. Do not use JSON."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
        "temperature": 0,
    }
    said = json.dumps(
        {"id": "c1", "model": "tiny-chat", "choices": [{"index": 0, "message": {"content": "Hello."}}]}
    ).encode()
    sea = json.dumps(
        {
            "id": "c2",
            "model": "tiny-chat",
            "choices": [{"index": 0, "message": {"content": "The sea " + "rolls and rolls " * 150}}],
        }
    ).encode()
    pieces = [
        b'data: {"choices":[{"delta":{"content":"He"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"y"}}]}\n\n',
    ]
    stream = tuple(Chunk(0.4 + 0.05 * i, piece) for i, piece in enumerate(pieces))
    return {
        one.id: one
        for one in (
            chat_exchange("x0001", "answer", gpu, plain, said),
            chat_exchange("x0002", "answer", tpu, plain, said),
            chat_exchange("x0012", "constrained", tpu, poem, sea),
            chat_exchange("x0013", "control", tpu, {**poem, "response_format": {"type": "text"}}, sea),
            chat_exchange("x0014", "constrained-2", tpu, poem, sea),
            chat_exchange(
                "x0020",
                "stream",
                tpu,
                {**plain, "stream": True, "stream_options": {"include_usage": True}},
                b"",
                response_headers=(("content-type", "text/event-stream; charset=utf-8"),),
                headers_at=0.016,
                chunks=stream,
                ended_at=0.46,
                ending=Ending.TRUNCATED,
                detail="the server closed the connection",
            ),
            chat_exchange(
                "x0030",
                "answer",
                tpu,
                {**plain, "top_p": 1e-6},
                b'{"error":{"message":"top_p is not supported on this platform","type":"BadRequestError"}}',
                status=400,
            ),
        )
    }


def _tpu_cells() -> Iterable[Cell]:
    ignored = "the answer with the schema is the answer without it"
    yield green("health.ready", "tpu", evidence="x0002")
    yield replace(green("chat.basic", "tpu", evidence="x0002"), notes=("slow first use: 21.3 s",))
    yield judged("chat.n", "tpu", S.SKIPPED, "not selected", skip_code="not-selected")
    yield judged(
        "streaming.frames",
        "tpu",
        S.FLAKY,
        "1 of 3 streams ended without data: [DONE]",
        trials=(S.SUPPORTED, S.BROKEN, S.SUPPORTED),
        findings=(
            finding("stream-ends-with-done", Outcome.HELD, "one [DONE], last", "x0020", mode=Mode.STREAM),
            finding(
                "stream-ends-with-done",
                Outcome.VIOLATED,
                "the stream was cut after 2 events; no [DONE]",
                "x0020",
                mode=Mode.STREAM,
                trial=2,
                measured={"events": 2, "done_events": 0},
            ),
            finding("stream-ends-with-done", Outcome.HELD, "one [DONE], last", "x0020", mode=Mode.STREAM, trial=3),
        ),
        known_issues=("https://github.com/vllm-project/vllm/issues/12345",),
    )
    yield judged(
        "streaming.usage",
        "tpu",
        S.BROKEN,
        "no chunk carried usage",
        findings=(
            finding(
                "usage-in-last-chunk",
                Outcome.VIOLATED,
                "2 chunks, none with usage",
                "x0020",
                mode=Mode.STREAM,
                scenario="stream-usage",
                measured={"expected": '{"usage": {"completion_tokens": 2}}', "actual": "no usage", "chunks": 2},
            ),
        ),
    )
    yield Cell(
        feature="sampling.greedy",
        endpoint="tpu",
        status=S.SUPPORTED,
        reason="",
        kind=Kind.PROPERTY,
        value="near-tie noise",
        how=How.OBSERVED,
    )
    yield judged(
        "sampling.top_p",
        "tpu",
        S.UNSUPPORTED,
        "400: top_p is not supported on this platform",
        findings=(finding("top-p-narrows", Outcome.REFUSED, "400 that names top_p", "x0030", scenario="top-p"),),
    )
    yield judged("sampling.logit_bias", "tpu", S.INCONCLUSIVE, "the baselines disagree in 4 of 5 tokens")
    for feature, route in (("structured.json_schema", Mode.NON_STREAM), ("structured.stream", Mode.STREAM)):
        yield judged(
            feature,
            "tpu",
            S.IGNORED,
            ignored,
            trials=(S.IGNORED,) * 3,
            findings=tuple(
                finding(
                    "schema-applied",
                    Outcome.NO_EFFECT,
                    "200 with a poem; the control is the same poem",
                    *(("x0012", "x0013") if trial == 1 else ("x0014", "x0013")),
                    mode=route,
                    scenario="json-schema-nonce",
                    trial=trial,
                    measured={"expected": '{"code": "qzvbtrmkwh"}', "actual": "The sea rolls and rolls …"},
                )
                for trial in (1, 2, 3)
            ),
        )
    yield judged("tools.auto", "tpu", S.ERROR, "429 four times; waited 60 s each time as told")
    yield Cell(
        feature="quantization.identity",
        endpoint="tpu",
        status=S.INCONCLUSIVE,
        reason="no route and no metric says it",
        kind=Kind.PROPERTY,
    )
    yield judged("audio.transcribe", "tpu", S.SKIPPED, "no probe yet", skip_code="no-probe")


def _gpu_cells() -> Iterable[Cell]:
    for feature in FEATURES:
        if feature.id == "sampling.greedy":
            yield Cell(
                feature=feature.id,
                endpoint="gpu",
                status=S.SUPPORTED,
                reason="",
                kind=Kind.PROPERTY,
                value="repeatable",
                how=How.OBSERVED,
            )
        elif feature.id == "quantization.identity":
            yield Cell(
                feature=feature.id,
                endpoint="gpu",
                status=S.SUPPORTED,
                reason="",
                kind=Kind.PROPERTY,
                value="none",
                how=How.DECLARED,
            )
        elif feature.id == "chat.n":
            yield judged(feature.id, "gpu", S.SKIPPED, "not selected", skip_code="not-selected")
        elif feature.id == "audio.transcribe":
            yield judged(feature.id, "gpu", S.SKIPPED, "no probe yet", skip_code="no-probe")
        elif feature.id == "tools.auto":
            yield judged(
                feature.id,
                "gpu",
                S.DEGRADED,
                "no usage in the reply to a tool result",
                findings=(finding("model-is-listed", Outcome.VIOLATED, "model is null", "x0001", level=Level.SHOULD),),
            )
        elif feature.kind is Kind.JUDGED:
            yield green(feature.id, "gpu")


def _compared(cells: Iterable[Cell]) -> Iterable[Comparison]:
    ranks = (S.SUPPORTED, S.DEGRADED, S.FLAKY, S.UNSUPPORTED, S.IGNORED, S.BROKEN)
    by_key = {(cell.feature, cell.endpoint): cell.status for cell in cells}
    for feature in FEATURES:
        if feature.kind is Kind.COMPARISON:
            yield Comparison(
                left="gpu",
                right="tpu",
                feature=feature.id,
                delta=Delta.DRIFT,
                why="|Δlogprob| p95 0.41 nat; own noise 0.02 and 0.03, margin 0.1",
                measured={"delta_logprob_p50": 0.0312, "delta_logprob_p95": 0.4105, "top1_agreement": 0.934},
                confounders=("device", "engine_version"),
                evidence=("x0001", "x0002"),
            )
            continue
        if feature.kind is Kind.PROPERTY:
            continue
        left, right = by_key[feature.id, "gpu"], by_key[feature.id, "tpu"]
        if left not in ranks or right not in ranks:
            yield Comparison(
                left="gpu", right="tpu", feature=feature.id, delta=Delta.UNCLEAR, why="a side is undecided"
            )
        elif left is right:
            yield Comparison(left="gpu", right="tpu", feature=feature.id, delta=Delta.SAME, why=f"both {left}")
        else:
            side = "tpu" if ranks.index(right) > ranks.index(left) else "gpu"
            yield Comparison(
                left="gpu",
                right="tpu",
                feature=feature.id,
                delta=Delta.BEHIND,
                side=side,
                why=f"{left} on gpu, {right} on tpu",
            )


def tallies(cells: Iterable[Cell]) -> tuple[GroupTally, ...]:
    """Tally the core rows of the sample cells."""
    worst = (S.BROKEN, S.FLAKY, S.IGNORED, S.UNSUPPORTED, S.DEGRADED, S.ERROR, S.INCONCLUSIVE, S.SKIPPED, S.SUPPORTED)
    core = {feature.id: feature for feature in FEATURES if feature.core}
    grouped: dict[tuple[str, str], list[Status]] = {}
    for cell in cells:
        if cell.feature in core:
            grouped.setdefault((core[cell.feature].group, cell.endpoint), []).append(cell.status)
    return tuple(
        GroupTally(
            group=group,
            endpoint=endpoint,
            status=min(statuses, key=worst.index),
            supported=statuses.count(S.SUPPORTED),
            total=len(statuses),
        )
        for (group, endpoint), statuses in grouped.items()
    )


MATRIX = """Feature,CorrectnessTest,PerformanceTest
"KV Cache Offload",✅ Passing,✅ Passing
"Prefix Caching",✅ Passing,✅ Passing
"sampling_params",✅ Passing,❓ Untested
"structured_decoding",✅ Passing,❓ Untested
"""

KNOWN = KnownIssue(
    engine="vllm",
    title="A stream now and then ends without its end marker.",
    reference="https://github.com/vllm-project/vllm/issues/12345",
    rows=("streaming.frames",),
    checks=("stream-ends-with-done",),
    outcomes=(Outcome.VIOLATED,),
    said=None,
    versions=">=0.30",
    fixed_in=None,
    stacks=(),
    hardware=(),
    architecture=None,
    confidence=Confidence.REPORTED,
    as_of=date(2026, 11, 30),
    note=None,
)


def two_endpoints() -> RunReport:
    """Return a run with blockers: gpu is the reference, tpu is offered instead."""
    cells = (*_gpu_cells(), *_tpu_cells())
    comparisons = tuple(_compared(cells))
    matrix = read_csv("tpu", "support_matrices/release/v7x/default/feature_support_matrix.csv", MATRIX.encode())
    blockers = (
        "structured.json_schema@tpu",
        "structured.stream@tpu",
        "streaming.usage@tpu",
        "streaming.frames@tpu",
        "sampling.top_p@tpu",
    )
    return RunReport(
        id="r-20261130-0915-ab12",
        started=datetime(2026, 11, 30, 9, 15, tzinfo=UTC),
        finished=datetime(2026, 11, 30, 9, 39, 20, tzinfo=UTC),
        complete=True,
        suite="standard",
        command=(
            *("servecheck", "run", "gpu=http://gpu.example:8000/v1", "tpu=http://tpu.example:8000/v1"),
            *("--reference", "gpu", "--header", "X-Api-Key: abc", "--out", "my run"),
        ),
        tool_version="0.1.0",
        probes_digest="5f0c2f9be8a1d9c2",
        requests=412,
        subjects=(GPU, TPU),
        reference="gpu",
        features=FEATURES,
        cells=cells,
        groups=tallies(cells),
        comparisons=comparisons,
        verdict=Verdict(
            decision=Decision.NOT_READY,
            sentence="tpu is behind gpu in 5 of 10 core rows; 2 core rows could not be decided.",
            blockers=blockers,
            caveats=("parity.logprobs@tpu",),
            unknown=("sampling.logit_bias@tpu", "tools.auto@tpu"),
        ),
        confounders=("engine_version", "device", "sampling.greedy"),
        instrument=InstrumentCheck(seeded=84, caught=84, variations=22, false_alarms=0),
        exchanges=exchanges(),
        checks=CHECKS,
        faults={
            "tools.auto@tpu": (Fault(kind=FaultKind.OVERLOADED, reason="429 four times, Retry-After 60", trace=""),)
        },
        remedies={
            "structured.json_schema@tpu": "start the server with a structured output backend, or validate in the client"
        },
        causes={
            "structured.json_schema@tpu": "no structured output backend is set",
            "structured.stream@tpu": "no structured output backend is set",
        },
        costs=(
            Cost(endpoint="gpu", requests=206, seconds=610.2, prompt_tokens=31_204, output_tokens=12_877),
            Cost(endpoint="tpu", requests=206, seconds=840.0),
        ),
        notes=("tpu: /metrics is not reachable from here; counters were not read",),
        known_issues=(KNOWN,),
        matrices=(matrix,),
        beside=beside((matrix,), cells),
    )


def one_endpoint() -> RunReport:
    """Return a run without a reference where everything asked for is green."""
    cells = tuple(
        green(feature.id, "gpu")
        if feature.kind is Kind.JUDGED
        else Cell(
            feature=feature.id,
            endpoint="gpu",
            status=S.SUPPORTED,
            reason="",
            kind=feature.kind,
            value="repeatable" if feature.id == "sampling.greedy" else "none",
            how=How.OBSERVED,
        )
        for feature in FEATURES
        if feature.kind is not Kind.COMPARISON
    )
    run = two_endpoints()
    return replace(
        run,
        id="r-20261130-1000-cd34",
        command=("servecheck", "run", "gpu=http://gpu.example:8000/v1"),
        subjects=(GPU,),
        reference=None,
        features=tuple(feature for feature in FEATURES if feature.kind is not Kind.COMPARISON),
        cells=cells,
        groups=tallies(cells),
        comparisons=(),
        verdict=Verdict(decision=Decision.READY, sentence="Yes: gpu falls short on none of 10 core rows."),
        confounders=(),
        remedies={},
        costs=(),
        notes=(),
    )


def died() -> RunReport:
    """Return the first run, ended in the middle: no footer, half of the cells."""
    run = two_endpoints()
    cells = tuple(cell for cell in run.cells if cell.feature.partition(".")[0] in {"health", "chat", "streaming"})
    return replace(
        run,
        finished=None,
        complete=False,
        interrupted="the machine was switched off",
        requests=97,
        cells=cells,
        groups=tallies(cells),
        comparisons=(),
        verdict=Verdict(
            decision=Decision.NOT_READY,
            sentence="No: tpu is behind gpu on 2 of 4 core rows.",
            blockers=("streaming.usage@tpu", "streaming.frames@tpu"),
        ),
        confounders=(),
        instrument=None,
        remedies={},
        costs=(),
        beside=tuple(replace(each, seen=None, contradicts=False) for each in run.beside),  # what they are of never ran
    )


def nothing_known() -> RunReport:
    """Return a run where every row is undecided or skipped, and nothing is known about the server."""
    kinds = (S.INCONCLUSIVE, S.ERROR, S.SKIPPED)
    codes = ("needs:chat.basic", "budget", "opt-in")
    cells = tuple(
        judged(
            feature.id,
            "gpu",
            kinds[i % 3],
            f"reason {i}",
            kind=feature.kind,
            skip_code=codes[i % 9 // 3] if kinds[i % 3] is S.SKIPPED else None,
        )
        for i, feature in enumerate(FEATURES)
        if feature.kind is not Kind.COMPARISON
    )
    return replace(
        one_endpoint(),
        subjects=(replace(GPU, fingerprint=Fingerprint(fields={}), endpoint=replace(GPU.endpoint, model=None)),),
        cells=cells,
        groups=tallies(cells),
        verdict=Verdict(
            decision=Decision.CANNOT_TELL,
            sentence="Cannot tell: no core row was decided on gpu.",
            unknown=tuple(f"{cell.feature}@gpu" for cell in cells if cell.kind is Kind.JUDGED),
        ),
        beside=(),
        matrices=(),
        instrument=InstrumentCheck(seeded=84, caught=83, variations=22, false_alarms=1),
        exchanges={},
    )


HOSTILE = (
    "pipe | tick ` ``` fence\n```\n::error::pwned\n##[command]rm\n# heading\n- item <img src=x onerror=alert(1)>"
    "![p](http://evil.example/p.png) [l](javascript:alert(1)) www.evil.example @octocat a@b.example org/repo#12 #34 "
    "**bold** _it_ ~~no~~ $x$ :rocket: &lt; \x1b[31mred\x00 \u202egnirts \u200bzero\u2066iso \ud800 \\ end\\"
)


def hostile() -> RunReport:
    """Return a run in which every string that a server, a model or a user may choose is hostile."""
    reply = HOSTILE.encode("utf-8", "backslashreplace") + b"\xff\xfe" + b"`" * 12 + b"\r\n::stop-commands::x\r\n" * 100
    name = "t|p`u\n::<b>@x"
    exchange = Exchange(
        id=f"x|{HOSTILE}",
        step=HOSTILE,
        method="POST",
        url=f"http://host.example/v1/chat?{HOSTILE}",
        request_body=reply,
        status=200,
        response_headers=(("content-type", HOSTILE),),
        headers_at=0.1,
        chunks=(Chunk(0.1, reply),),
        ended_at=0.2,
        detail=HOSTILE,
    )
    bad = finding(
        "schema-applied",
        Outcome.VIOLATED,
        HOSTILE,
        exchange.id,
        scenario=HOSTILE,
        measured={"expected": HOSTILE, "actual": HOSTILE, HOSTILE: HOSTILE, "nan": float("nan")},
    )
    held = finding("model-is-listed", Outcome.HELD, HOSTILE, exchange.id)
    cells = (
        judged("chat.basic", name, S.BROKEN, HOSTILE, findings=(bad, held), notes=(HOSTILE,), parts=HOSTILE),
        judged("health.ready", name, S.INCONCLUSIVE, HOSTILE),
        judged("streaming.frames", name, S.SUPPORTED, HOSTILE, findings=(held,), known_issues=(HOSTILE,)),
        Cell(
            feature="sampling.greedy",
            endpoint=name,
            status=S.SUPPORTED,
            reason=HOSTILE,
            kind=Kind.PROPERTY,
            value=HOSTILE,
            how=How.OBSERVED,
        ),
    )
    features = tuple(feature for feature in FEATURES if feature.id in {cell.feature for cell in cells})
    return RunReport(
        id=HOSTILE,
        started=datetime(2026, 11, 30, 9, 15, tzinfo=UTC),
        finished=datetime(2026, 11, 30, 9, 16, tzinfo=UTC),
        complete=False,
        interrupted=HOSTILE,
        suite=HOSTILE,
        command=("servecheck", HOSTILE.replace("\ud800", ""), "--header", "Authorization: Bearer secret"),
        tool_version="0.1.0",
        probes_digest="5f0c2f9be8a1d9c2",
        requests=3,
        subjects=(
            Subject(
                endpoint=Endpoint(name=name, base_url="http://user:secret@host.example/v1?key=secret", model=HOSTILE),
                fingerprint=Fingerprint(
                    fields={
                        "engine": Known(value=HOSTILE, how=How.OBSERVED, source=HOSTILE),
                        "device": Known(value=HOSTILE, how=How.DECLARED, source=HOSTILE),
                    }
                ),
            ),
        ),
        features=features,
        cells=cells,
        groups=tallies(cells),
        verdict=Verdict(
            decision=Decision.NOT_READY,
            sentence=HOSTILE,
            blockers=(f"chat.basic@{name}",),
            caveats=(f"streaming.frames@{name}",),
            unknown=(f"health.ready@{name}",),
        ),
        broken_on_both=(HOSTILE,),
        confounders=(HOSTILE,),
        exchanges={exchange.id: exchange},
        checks=CHECKS,
        remedies={f"chat.basic@{name}": HOSTILE},
        faults={f"chat.basic@{name}": (Fault(kind=FaultKind.EXCEPTION, reason=HOSTILE, trace=HOSTILE),)},
        costs=(Cost(endpoint=name, requests=3, seconds=1.0),),
        notes=(HOSTILE,),
    )


def four_endpoints() -> RunReport:
    """Return a run of the same reference with three candidates, the last of which nobody reached."""
    run = two_endpoints()
    more = ("tpu-v6e", "h200")
    subjects = tuple(replace(TPU, endpoint=replace(TPU.endpoint, name=name)) for name in more)
    second = tuple(replace(cell, endpoint="tpu-v6e") for cell in run.cells if cell.endpoint == "gpu")
    third = tuple(judged(f.id, "h200", S.ERROR, "connection refused") for f in run.features if f.kind is Kind.JUDGED)
    cells = (*run.cells, *second, *third)
    comparisons = tuple(
        replace(one, right=name, delta=delta, side=None, why="", measured={}, evidence=())
        for name, delta in (("tpu-v6e", Delta.SAME), ("h200", Delta.UNCLEAR))
        for one in run.comparisons
        if (one.feature, name) in {(cell.feature, cell.endpoint) for cell in cells}
    )
    return replace(
        run,
        subjects=(*run.subjects, *subjects),
        cells=cells,
        comparisons=(*run.comparisons, *comparisons),
        groups=tallies(cells),
    )


RUNS = {
    "two-endpoints": two_endpoints,
    "four-endpoints": four_endpoints,
    "one-endpoint": one_endpoint,
    "died": died,
    "nothing-known": nothing_known,
    "hostile": hostile,
}
"""The fixed runs by name: each has its whole reports in ``tests/goldens``."""
