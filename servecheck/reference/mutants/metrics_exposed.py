"""Metrics that are hidden, renamed, frozen or wrong, and metrics that only look odd."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

from servecheck.model import Outcome
from servecheck.reference.asgi import Reply, Request
from servecheck.reference.engine import Delta, Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]


class MetricsNamedAsJson(ReferenceServer):
    """Sends metrics as JSON that is none, so that a strict scraper takes none of them."""

    async def reply_metrics(self, request: Request) -> Reply:
        """Rename what it is."""
        made = await super().reply_metrics(request)
        return replace(made, headers=(("content-type", "application/json; charset=utf-8"),))


class MetricsUnnamed(ReferenceServer):
    """Sends metrics without a content type."""

    async def reply_metrics(self, request: Request) -> Reply:
        """Name nothing."""
        return replace(await super().reply_metrics(request), headers=())


class MetricsAsOpenMetrics(ReferenceServer):
    """Names its metrics by the newer format's content type, in which they can be read too."""

    async def reply_metrics(self, request: Request) -> Reply:
        """Name it."""
        made = await super().reply_metrics(request)
        return replace(made, headers=(("Content-Type", "Application/OpenMetrics-Text; version=1.0.0"),))


class MetricsOff(ReferenceServer):
    """Has no metrics route, as an engine that was started without the flag for it."""

    async def reply_metrics(self, _: Request) -> Reply:
        """Have no such route."""
        raise ApiError("no route /metrics", status=404, kind="not_found_error", code="not_found")


class MetricsFail(ReferenceServer):
    """Fails inside when it is asked for metrics."""

    async def reply_metrics(self, _: Request) -> Reply:
        """Fail."""
        raise ApiError("internal error", status=500, kind="InternalServerError")


class MetricsAreHtml(ReferenceServer):
    """Answers every unknown path, metrics too, with the page of its user interface."""

    async def reply_metrics(self, _: Request) -> Reply:
        """Send a page."""
        page = b'<!doctype html>\n<html lang="en"><head><title>UI</title></head><body class="a"></body></html>\n'
        return Reply(headers=(("content-type", "text/html"),), body=page)


class GatewayMetricsOnly(ReferenceServer):
    """Shows the metrics of the gateway in front, and none of the engine's."""

    def metrics_text(self) -> str:
        """Show a process."""
        return "# TYPE process_open_fds gauge\nprocess_open_fds 12.0\n"


class GaugeRenamed(ReferenceServer):
    """Calls the number of waiting requests by a new name, so that routers see no queue."""

    def metrics_text(self) -> str:
        """Rename a gauge."""
        return super().metrics_text().replace("num_requests_waiting", "requests_queued")


class HistogramMissing(ReferenceServer):
    """Lacks the histogram of whole latencies that dashboards plot."""

    def metrics_text(self) -> str:
        """Leave lines out."""
        lines = super().metrics_text().splitlines(keepends=True)
        return "".join(line for line in lines if "e2e_request_latency" not in line)


class Frozen(ReferenceServer):
    """Shows the first metrics for ever, as a cache in front does."""

    _first = ""

    def metrics_text(self) -> str:
        """Remember the first."""
        self._first = self._first or super().metrics_text()
        return self._first


class CountsRequests(ReferenceServer):
    """Counts one generated token per request, however long the answer is."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Take back all tokens but one."""
        before = self.metrics.generation_tokens
        async for delta in super().deltas(job):
            yield delta
        self.metrics.generation_tokens = before + 1


class CountsStreamsOnly(ReferenceServer):
    """Finds token counts in streams only, so that whole replies leave the counters at zero."""

    async def deltas(self, job: Job) -> AsyncIterator[Delta]:
        """Take back what was counted."""
        before = self.metrics.prompt_tokens, self.metrics.generation_tokens
        async for delta in super().deltas(job):
            yield delta
        if not job.stream:
            self.metrics.prompt_tokens, self.metrics.generation_tokens = before


class CountersFall(ReferenceServer):
    """Starts its counters again between two reads, as behind an address that changes replicas."""

    _reads = 0

    def metrics_text(self) -> str:
        """Count down from a million."""
        self._reads += 1
        text = super().metrics_text()
        return re.sub(r"(prompt_tokens_total\{[^}]*\}) .*", rf"\1 {10**6 // self._reads}.0", text)


# --------------------------------------------------------------------------- odd, but right


class AbortsNotCounted(ReferenceServer):
    """Has a count of aborted requests that stays at zero, whoever hangs up."""

    def metrics_text(self) -> str:
        """Take back what was counted."""
        self.metrics.finished["abort"] = 0
        return super().metrics_text()


class NoAbortSeries(ReferenceServer):
    """Counts ended requests by reason and knows no aborted ones: there is nothing to be wrong."""

    def metrics_text(self) -> str:
        """Leave the series out."""
        return "".join(line for line in super().metrics_text().splitlines(keepends=True) if '"abort"' not in line)


class RayNames(ReferenceServer):
    """Republishes the engine's series under Ray's names, with a label more."""

    def metrics_text(self) -> str:
        """Rename everything."""
        return super().metrics_text().replace("vllm:", "ray_vllm_").replace('engine="0"', 'engine="0",ReplicaId="a"')


class OlderNames(ReferenceServer):
    """Uses the names that two series had in earlier releases."""

    def metrics_text(self) -> str:
        """Rename back."""
        text = super().metrics_text().replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
        return text.replace("inter_token_latency", "time_per_output_token")


class CreatedTwins(ReferenceServer):
    """Gives each counter a twin that holds the time when it was created, a far larger number."""

    def metrics_text(self) -> str:
        """Add gauges."""
        text = super().metrics_text()
        twins = re.findall(r"^(vllm:\w+)_total(\{.*\}) ", text, re.MULTILINE)
        return text + "".join(
            f"# TYPE {name}_created gauge\n{name}_created{labels} 1.7e+09\n" for name, labels in dict(twins).items()
        )


class TwoEngines(ReferenceServer):
    """Splits each series over two engines by a label; only the sum tells all."""

    def metrics_text(self) -> str:
        """Add a busy second engine."""
        text = super().metrics_text()
        second = re.findall(r'^(vllm:\w+_total\{engine=)"0"(.*\}) ', text, re.MULTILINE)
        lines = text.splitlines(keepends=True)
        for head, tail in second:
            place = next(at for at, line in enumerate(lines) if line.startswith(f'{head}"0"{tail}'))
            lines.insert(place + 1, f'{head}"1"{tail} 5000.0\n')
        return "".join(lines)


class OthersAreHere(ReferenceServer):
    """Serves others between two reads, so that counters grow by more than we used."""

    def metrics_text(self) -> str:
        """Count the others."""
        self.metrics.prompt_tokens += 700
        self.metrics.generation_tokens += 300
        return super().metrics_text()


class LateCounters(ReferenceServer):
    """Updates its metrics every two seconds."""

    _shown, _at = "", -10.0

    def metrics_text(self) -> str:
        """Keep what was shown for a while."""
        now = asyncio.get_running_loop().time()
        if now - self._at >= 2:
            self._shown, self._at = super().metrics_text(), now
        return self._shown


_V, _R = Outcome.VIOLATED, Outcome.REFUSED
_READ, _KEY, _MORE = "metrics-can-be-read", "steering-series-are-there", "promised-series-are-there"
_MOVE = "token-counters-move-with-requests"

_TYPED = "metrics-come-in-a-type-that-is-scraped"

MUTANTS = (
    Mutant(
        id="metrics-named-as-json",
        server=MetricsNamedAsJson,
        trips=((_TYPED, _V),),
        source="openvinotoolkit/model_server#3689",
    ),
    Mutant(id="metrics-unnamed", server=MetricsUnnamed, trips=((_TYPED, _V),)),
    Mutant(
        id="aborts-not-counted",
        server=AbortsNotCounted,
        trips=(("aborted-requests-are-counted", _V),),
        source="vllm-project/vllm#31503",
    ),
    Mutant(id="metrics-off", server=MetricsOff, trips=((_READ, _R),)),
    Mutant(id="metrics-fail", server=MetricsFail, trips=((_READ, _V),)),
    Mutant(id="metrics-are-html", server=MetricsAreHtml, trips=((_READ, _V),)),
    Mutant(id="gateway-metrics-only", server=GatewayMetricsOnly, trips=((_KEY, Outcome.UNDETERMINED),)),
    Mutant(id="gauge-renamed", server=GaugeRenamed, trips=((_KEY, _V),), source="vllm-project/vllm#29508"),
    Mutant(id="histogram-missing", server=HistogramMissing, trips=((_MORE, _V),)),
    Mutant(id="metrics-frozen", server=Frozen, trips=((_MOVE, _V),)),
    Mutant(id="counts-requests", server=CountsRequests, trips=((_MOVE, _V),)),
    Mutant(
        id="counts-streams-only",
        server=CountsStreamsOnly,
        trips=((_MOVE, _V),),
        source="kubernetes-sigs/gateway-api-inference-extension#2482",
    ),
    Mutant(id="counters-fall", server=CountersFall, trips=((_MOVE, _V),), source="vllm-project/vllm#43031"),
)

HARMLESS = (
    Harmless(id="metrics-as-open-metrics", server=MetricsAsOpenMetrics),
    Harmless(id="no-abort-series", server=NoAbortSeries),
    Harmless(id="ray-names", server=RayNames),
    Harmless(id="older-names", server=OlderNames),
    Harmless(id="created-twins", server=CreatedTwins),
    Harmless(id="two-engines", server=TwoEngines),
    Harmless(id="others-are-here", server=OthersAreHere),
    Harmless(id="late-counters", server=LateCounters),
)
