"""What a run was asked and by which probes, as the header of its folder says it: written from a plan, and read back."""

from __future__ import annotations

import hashlib
import inspect
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from servecheck import __version__, features
from servecheck.errors import StoreError
from servecheck.model import Feature, Json, Level, Risk
from servecheck.plan import Estimate, Plan, Settings, Skip
from servecheck.probe import Params, Probe
from servecheck.report.data import InstrumentCheck
from servecheck.scenario import Scenario, Tune
from servecheck.store import RunReader, to_json
from servecheck.wire.redact import without_secrets
from servecheck.workload import Planned, PlannedItem

__all__ = [
    "Probes",
    "as_list",
    "as_object",
    "as_text",
    "header_of",
    "instrument_check",
    "instrument_of",
    "plan_of",
    "planned",
    "probes_digest",
    "rows",
    "scenarios",
]

Probes = Mapping[str, Probe[Params]]

_DECIDING = ("canary", "firstuse", "judging", "parity", "rollup", "signs", "stats")
"""The modules beside the probes that have a say in a status."""


def header_of(
    plan: Plan, probes: Probes, command: Sequence[str], started: datetime, instrument: InstrumentCheck | None
) -> dict[str, Json]:
    """Return the header of a run folder, without secrets."""
    settings = plan.settings
    return {
        "id": f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
        "started": started.isoformat(),
        "version": __version__,
        "probes_digest": probes_digest(probes),
        "suite": settings.suite,
        "command": list(command),
        "settings": {
            "trials": settings.trials,
            "deadline": settings.deadline,
            "concurrency": settings.concurrency,
            "seed": settings.seed,
            "allow": [str(risk) for risk in sorted(settings.allow)],
        },
        "instrument": to_json(instrument),
        "endpoints": to_json([without_secrets(endpoint) for endpoint in plan.endpoints]),
        "scenarios": [_scenario_fields(scenario) for scenario in plan.scenarios],
        "skips": to_json(plan.skips),
        **({"workload": to_json(plan.workload)} if plan.workload is not None else {}),
    }


def _scenario_fields(scenario: Scenario) -> dict[str, Json]:
    return {
        "id": scenario.id,
        "title": scenario.title,
        "feature": scenario.feature,
        "probe": scenario.probe,
        "why": scenario.why,
        "with": scenario.params.model_dump(mode="json"),
        "trials": scenario.trials,
        "tags": list(scenario.tags),
        "tune": {check: {"level": tune.level, "because": tune.because} for check, tune in scenario.tune.items()},
        "needs": list(scenario.needs),
    }


def plan_of(folder: Path, probes: Probes) -> Plan:
    """Return the plan that a run folder was recorded with, to go on with it."""
    reader = RunReader(folder)
    settings = as_object(reader.header.get("settings"))
    trials = settings.get("trials")
    return Plan(
        endpoints=tuple(one for one, _ in reader.planned() if one.name != reader.header.get("recorded")),
        scenarios=tuple(scenarios(reader, probes).values()),
        skips=tuple(
            Skip(feature=str(skip["feature"]), code=str(skip["code"]), reason=str(skip["reason"]))
            for item in as_list(reader.header.get("skips"))
            if (skip := as_object(item))
        ),
        settings=Settings(
            suite=str(reader.header.get("suite", "standard")),
            trials=trials if isinstance(trials, int) else None,
            deadline=float(str(settings.get("deadline", 300.0))),
            concurrency=int(str(settings.get("concurrency", 8))),
            seed=str(settings.get("seed", "servecheck")),
            allow=frozenset(Risk(str(risk)) for risk in as_list(settings.get("allow"))),
        ),
        estimate=Estimate(requests=0, prompt_tokens=0, output_tokens=0),
        workload=planned(reader),
    )


def scenarios(reader: RunReader, probes: Probes) -> dict[str, Scenario]:
    """Return the scenarios that a run was asked, by id; ``StoreError`` where today's probes cannot read them."""
    found = {}
    for item in as_list(reader.header.get("scenarios")):
        fields = as_object(item)
        probe = probes.get(str(fields["probe"]))
        if probe is None:
            raise StoreError(f"{reader.folder}: recorded by the probe {fields['probe']!r}, which does not exist here")
        tuned = {check: as_object(tune) for check, tune in as_object(fields.get("tune")).items()}
        trials = fields.get("trials")
        found[str(fields["id"])] = Scenario(
            id=str(fields["id"]),
            title=str(fields["title"]),
            feature=str(fields["feature"]),
            probe=probe.id,
            why=str(fields["why"]),
            params=_params(reader, probe, fields.get("with")),
            trials=trials if isinstance(trials, int) else None,
            tags=tuple(str(tag) for tag in as_list(fields.get("tags"))),
            tune={name: Tune(level=Level(str(it["level"])), because=str(it["because"])) for name, it in tuned.items()},
            needs=tuple(str(need) for need in as_list(fields.get("needs"))),
            path=Path(str(fields["id"])),
        )
    return found


def _params(reader: RunReader, probe: Probe[Params], recorded: Json) -> Params:
    try:
        return probe.params.model_validate(recorded or {}, strict=False)
    except ValidationError as error:
        names = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in error.errors())
        why = f"recorded with parameters that today's probe {probe.id!r} does not take ({names})"
        raise StoreError(f"{reader.folder}: {why}; read it with the version that recorded it") from error


def planned(reader: RunReader) -> Planned | None:
    """Return what a run was asked of a workload."""
    recorded = reader.header.get("workload")
    if not isinstance(recorded, dict):
        return None
    return Planned(
        source=str(recorded.get("source", "")),
        notes=tuple(str(note) for note in as_list(recorded.get("notes"))),
        items=tuple(
            PlannedItem(
                kind=str(item["kind"]),
                name=str(item["name"]),
                place=str(item["place"]),
                uses=uses if isinstance(uses := item.get("uses"), int) else None,
                scenario=str(item["scenario"]),
            )
            for one in as_list(recorded.get("items"))
            if (item := as_object(one))
        ),
    )


def rows(reader: RunReader) -> tuple[Feature, ...]:
    """Return the rows of a run: all that there are, and a user's own, planned or left out."""
    asked = [as_object(item) for item in as_list(reader.header.get("scenarios"))]
    skips = [as_object(item) for item in as_list(reader.header.get("skips"))]
    named = [(str(item["feature"]), str(item["title"])) for item in asked]
    return features.with_own([*named, *((str(item["feature"]), str(item["feature"])) for item in skips)])


def probes_digest(probes: Probes) -> str:
    """Return a digest of the code that decides: runs with unlike digests were judged by unlike rules.

    It covers the modules of the judges, and what they share: how replies are read, weighed and made into a status.
    """
    modules = [inspect.getmodule(probe.judge) or probe.judge for _, probe in sorted(probes.items())]
    return hashlib.sha256("".join((*map(inspect.getsource, modules), _shared())).encode()).hexdigest()[:12]


@cache
def _shared() -> str:
    """Return the source of what judges share, file by file in the order of their names."""
    package = files("servecheck")
    helpers = [each for each in package.joinpath("probes").iterdir() if each.name.startswith("_")]
    readers = list(package.joinpath("read").iterdir())
    others = [package.joinpath(f"{name}.py") for name in _DECIDING]
    found = [*helpers, *readers, *others]
    return "".join(each.read_text("utf-8") for each in sorted(found, key=str) if each.name.endswith(".py"))


def instrument_check(probes: Probes) -> InstrumentCheck | None:
    """Return what the whole kill matrix said of exactly these probes, ``None`` where they have changed since.

    ``make docs`` measures it and writes it down, since it takes minutes that a run does not have.
    """
    known = as_object(json.loads(files("servecheck").joinpath("instrument.json").read_text("utf-8")))
    return instrument_of(known) if known.get("probes_digest") == probes_digest(probes) else None


def instrument_of(value: Json) -> InstrumentCheck | None:
    """Return what a header says of the instrument check."""
    numbers = {name: number for name, number in as_object(value).items() if isinstance(number, int)}
    return InstrumentCheck(**numbers) if len(numbers) == 4 else None


def as_text(value: Json) -> str | None:
    """Return a text, or None."""
    return value if isinstance(value, str) else None


def as_list(value: Json) -> list[Json]:
    """Return a list, empty where the value is none."""
    return value if isinstance(value, list) else []


def as_object(value: Json) -> dict[str, Json]:
    """Return an object, empty where the value is none."""
    return value if isinstance(value, dict) else {}
