"""Which scenarios each suite runs and what that costs, as plain rows for whoever lists them; it runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servecheck.model import Json
from servecheck.plan import SUITES, Estimate, of_suite
from servecheck.probe import Params, Probe
from servecheck.scenario import Scenario

__all__ = ["COST_IS", "cost_in_words", "dearest", "scenario_rows", "suite_rows"]

COST_IS = (
    "One look at each scenario, on a healthy endpoint that chats and has every feature. A second and a third look, "
    "where something does not hold, come on top. Tokens are as the reference server counts them."
)
"""What the costs of suites and scenarios are the costs of."""

Probes = Mapping[str, Probe[Params]]


def scenario_rows(scenarios: Sequence[Scenario], probes: Probes) -> list[dict[str, Json]]:
    """Return each scenario with its suites, its risk and its cost."""
    of = {name: {each.id for each in of_suite(suite, scenarios, probes)[0]} for name, suite in SUITES.items()}
    rows: list[dict[str, Json]] = []
    for each in scenarios:
        probe = probes[each.probe]
        used = probe.of(each.params)
        rows.append(
            {
                "id": each.id,
                "title": each.title,
                "feature": each.feature,
                "probe": each.probe,
                "tags": list(each.tags),
                "trials": each.trials,
                "risk": probe.risk.value,
                "suites": [name for name, ids in of.items() if each.id in ids],
                "requests": used.requests,
                "prompt_tokens": used.prompt_tokens,
                "output_tokens": used.output_tokens,
            }
        )
    return rows


def dearest(probe: Probe[Params], scenarios: Sequence[Scenario]) -> dict[str, Json]:
    """Return the cost of a probe's dearest scenario, the probe's own where it has none."""
    costs = [probe.of(each.params) for each in scenarios if each.probe == probe.id]
    most = max(costs, key=lambda each: each.requests, default=probe)
    return {
        "requests": most.requests,
        "prompt_tokens": most.prompt_tokens,
        "output_tokens": most.output_tokens,
    }


def suite_rows(scenarios: Sequence[Scenario], probes: Probes) -> list[dict[str, Json]]:
    """Return each suite with the number of its scenarios and rows, and its cost."""
    rows: list[dict[str, Json]] = []
    for name, suite in SUITES.items():
        mine, cost = of_suite(suite, scenarios, probes)
        rows.append(
            {
                "id": name,
                "about": suite.about,
                "scenarios": len(mine),
                "features": len({each.feature for each in mine}),
                "requests": cost.requests,
                "prompt_tokens": cost.prompt_tokens,
                "output_tokens": cost.output_tokens,
            }
        )
    return rows


def cost_in_words(row: Mapping[str, Json] | Estimate) -> str:
    """Return a cost as ``333 requests, 26k prompt and 7k generated tokens``."""
    known = row if isinstance(row, Mapping) else {name: getattr(row, name) for name in Estimate.__slots__}
    prompt, output = (_thousands(int(str(known[name]))) for name in ("prompt_tokens", "output_tokens"))
    return f"{known['requests']} requests, {prompt} prompt and {output} generated tokens"


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)
