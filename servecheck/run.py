"""A run carried out into a run folder, from which its report is made.

What reads the folder is in :mod:`servecheck.readback` and :mod:`servecheck.asked`, and can be had from here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from servecheck import declared, expectations, profiles
from servecheck.asked import Probes, header_of, instrument_check, plan_of, probes_digest
from servecheck.budget import Budget
from servecheck.declared import Matrix
from servecheck.endpoints import key_variable, secret_headers
from servecheck.errors import StoreError
from servecheck.expectations import Expectation
from servecheck.join import Recorded
from servecheck.model import Endpoint, Json, SkipCode, Status
from servecheck.plan import Plan
from servecheck.profiles import Profile
from servecheck.readback import Judged, read_back, trials_of
from servecheck.report.data import InstrumentCheck
from servecheck.report.framing import Framing
from servecheck.runner import Connect, Earlier, Progress, Runner
from servecheck.store import RunReader, RunWriter, to_json
from servecheck.wire.transport import Transport

__all__ = ["Connect", "carry_out", "connector", "instrument_check", "plan_of", "probes_digest", "read_back"]


def connector(environ: Mapping[str, str]) -> Connect:
    """Return how endpoints are reached over the network, with keys and secret headers from ``environ``."""

    def connect(endpoint: Endpoint) -> Transport:
        variable = key_variable(endpoint, environ)
        held = {name: environ[name] for _, name in endpoint.header_envs}
        secret_headers(endpoint, environ)  # raises where one is missing or would travel unencrypted
        if variable is not None:
            held[variable] = environ[variable]
        return Transport(endpoint, secrets=held, key_env=variable)

    return connect


async def carry_out(
    plan: Plan,
    probes: Probes,
    folder: Path,
    connect: Connect,
    *,
    command: Sequence[str] = (),
    budget: Budget | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
    resume: bool = False,
    instrument: InstrumentCheck | None = None,
    profile: Profile | None = None,
    expected: Sequence[Expectation] = (),
    previous: Mapping[str, Json] | None = None,
    framing: Framing | None = None,
    matrices: Sequence[Matrix] = (),
    recorded: Recorded | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Carry out a plan into ``folder``; an interrupted run leaves a valid folder whose footer says so.

    ``instrument`` is what is known of the probes themselves, as :func:`instrument_check` says it. ``profile``,
    ``expected`` and ``matrices`` are kept in the folder, so that reading it back says the same, as is what
    :func:`history.previous_of` knew of the ``previous`` runs. A ``recorded`` reference is copied into the folder first;
    probes are driven with its transcripts and judged against them, as if it had answered in this run.

    Raises ``StoreError`` where the folder cannot be written, ``UsageError`` where an endpoint's model is ambiguous.
    """
    # What cannot be reached at all (no key, no CA file) is noticed before a folder is made.
    ways = {endpoint.name: connect(endpoint) for endpoint in plan.endpoints}
    earlier = _earlier(folder, probes) if resume else Earlier()
    writer = RunWriter(folder, resume=resume)
    asked = {
        "profile": profiles.as_header(profile),
        "expectations": to_json(expectations.as_header(expected)),
        "previous": dict(previous or {}),
        **({"framing": framing.as_header()} if framing and framing != Framing() else {}),
        "declared": to_json(declared.as_header(matrices)),
    }
    header = header_of(plan, probes, command, now(), instrument)
    if recorded is not None:
        header = recorded.header(header)
    writer.header(**header, **asked)
    if recorded is not None:
        last = recorded.copy(writer, header)
        earlier = Earlier(references=trials_of(RunReader(folder), probes)[1], last_id=last)
    runner = Runner(
        plan, probes, lambda endpoint: ways[endpoint.name], writer, budget=budget, watch=watch, earlier=earlier
    )
    interrupted = None
    try:
        await runner.run()
    except (asyncio.CancelledError, KeyboardInterrupt):
        interrupted = "interrupted"
        raise
    except BaseException as error:
        interrupted = f"{type(error).__name__}: {error}"
        raise
    finally:
        _close(writer, folder, probes, runner, interrupted, now())


def _earlier(folder: Path, probes: Probes) -> Earlier:
    """Return what the parts of an interrupted run have done; what was our trouble or the budget's is done again."""
    reader = RunReader(folder)
    if reader.header.get("probes_digest") != probes_digest(probes):
        raise StoreError(f"{folder} was recorded by other probes than these; start a new run")
    trials, references = trials_of(reader, probes)
    return Earlier(
        trials=tuple(
            trial for trial in trials if trial.status is not Status.ERROR and trial.skip_code != SkipCode.BUDGET
        ),
        references=references,
        last_id=max((int(str(line["id"])[1:]) for line in reader.lines("exchange")), default=0),
        parts=sum(1 for _ in reader.lines("header")),
    )


def _close(
    writer: RunWriter, folder: Path, probes: Probes, runner: Runner, interrupted: str | None, finished: datetime
) -> None:
    """Write the cells and the footer. Cells are for whoever reads the file without us; judging makes them again."""
    for cell in Judged(RunReader(folder), probes).cells:
        row: dict[str, Json] = {"feature": cell.feature, "endpoint": cell.endpoint, "status": cell.status}
        writer.write("cell", **row, reason=cell.reason, trials=to_json(cell.trials), skip_code=cell.skip_code)
    writer.write(
        "footer",
        finished=finished.isoformat(),
        complete=interrupted is None,
        interrupted=interrupted,
        spent={name: to_json(spent) for name, spent in runner.spent.items()},
    )
    writer.close()
