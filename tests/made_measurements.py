"""A fixed run in which everything that a report can draw was measured."""

from __future__ import annotations

import json
from dataclasses import replace

from servecheck.model import Cell, Chunk, Comparison, Delta, Exchange, Feature, How, Kind, Observed, Outcome, Status
from servecheck.parity import STEPS
from servecheck.report.data import RunReport, row_key
from tests.sample_runs import finding, judged, two_endpoints

__all__ = ["measured", "streamed"]


def streamed(name: str, step: str, *arrivals: float, prompt: int = 0) -> Exchange:
    """Return a streamed answer with a word at each of these times."""
    word = json.dumps({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "a"}}]})
    done = json.dumps({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 1, "total_tokens": 1}})
    chunks = [Chunk(at=at, data=f"data: {word}\n\n".encode()) for at in arrivals]
    chunks.append(Chunk(at=arrivals[-1], data=f"data: {done}\n\ndata: [DONE]\n\n".encode()))
    return Exchange(
        id=name,
        step=step,
        method="POST",
        url="http://h/v1/chat/completions",
        request_body=b'{"stream": true}',
        status=200,
        response_headers=(("content-type", "text/event-stream"),),
        chunks=tuple(chunks),
        ended_at=arrivals[-1],
    )


def measured() -> RunReport:
    """Return a run in which everything that can be drawn was measured."""
    run = two_endpoints()
    features = tuple(
        Feature(id=name, title=name, question="?", core=False, kind=kind)
        for name, kind in (
            ("performance.latency", Kind.PROPERTY),
            ("compile.recompilation", Kind.JUDGED),
            ("streaming.incremental", Kind.JUDGED),
            ("parity.forced", Kind.COMPARISON),
        )
    )
    cells: list[Cell] = []
    exchanges: dict[str, Exchange] = {}
    samples: dict[str, tuple[str, ...]] = {}
    for name, factor in (("gpu", 1.0), ("tpu", 2.0)):
        figures: dict[str, float | int | str | bool | None] = {}
        for at in (1, 4):
            for key, value in (("ttft", 20.0), ("between_tokens", 5.0)):
                figures |= {f"{key}_at_{at}_ms": value * at * factor, f"{key}_at_{at}_low_ms": value * at}
                figures[f"{key}_at_{at}_high_ms"] = 3 * value * at
            figures[f"tokens_per_s_at_{at}"] = 40.0 * at / factor
        observed = Observed(value="fast", why="so", measured=figures)
        cells.append(
            Cell(
                feature="performance.latency",
                endpoint=name,
                status=Status.SUPPORTED,
                reason="",
                kind=Kind.PROPERTY,
                value="fast",
                how=How.OBSERVED,
                observed=(observed,),
            )
        )
        sent = [
            streamed(f"{name}-{kind}-{tokens}", f"{kind}-length-{tokens}", at * factor, prompt=tokens)
            for tokens in (64, 512)
            for kind, at in (("cold", 1.0), ("warm", 0.1))
        ]
        samples[row_key("compile.recompilation", name)] = tuple(each.id for each in sent)
        stream = streamed(f"{name}-s", "stream", *(0.1 * factor * place for place in range(1, 21)))
        exchanges |= {each.id: each for each in (*sent, stream)}
        held = finding("text-arrives-in-pieces", Outcome.HELD, "so", stream.id)
        cells.append(judged("streaming.incremental", name, Status.SUPPORTED, findings=(held,)))
    apart: dict[str, float | int | str | bool | None] = {
        "kl": 0.002,
        "kl_low": 0.001,
        "kl_high": 0.003,
        "noise_kl": 0.0004,
    }
    apart |= {f"delta_{each}_nat": value for each, value in (("p50", 0.01), ("p95", 0.1), ("p99", 0.4), ("max", 2.5))}
    apart |= {f"delta_from_{edge:g}_nat": n for edge, n in zip(STEPS, (40, 10, 20, 10, 12, 6, 1, 1, 0), strict=True)}
    apart |= {f"own_delta_from_{edge:g}_nat": n for edge, n in zip(STEPS, (90, 6, 4, 0, 0, 0, 0, 0, 0), strict=True)}
    compared = Comparison(left="gpu", right="tpu", feature="parity.forced", delta=Delta.DRIFT, why="so", measured=apart)
    return replace(
        run,
        features=(*run.features, *features),
        cells=(*run.cells, *cells),
        comparisons=(*run.comparisons, compared),
        exchanges={**run.exchanges, **exchanges},
        samples=samples,
    )
