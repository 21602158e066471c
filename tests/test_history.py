"""Runs of many nights: what flipped, what wavers and what drifts is told, nothing is invented, and nothing is lost."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servecheck.errors import StoreError, UsageError
from servecheck.features import FEATURES
from servecheck.history import History, Told, changes, previous_of
from servecheck.history_text import as_text, told_as_json
from servecheck.model import (
    Cell,
    Decision,
    Endpoint,
    Finding,
    Fingerprint,
    How,
    Json,
    Kind,
    Known,
    Level,
    Outcome,
    Status,
    Verdict,
)
from servecheck.report.data import RunReport, Subject
from tests.lab import Lab, Odd, answers

FIRST = datetime(2026, 5, 1, 3, 0, tzinfo=UTC)
ROWS = [feature for feature in FEATURES if feature.kind is Kind.JUDGED]
S, B, F = Status.SUPPORTED, Status.BROKEN, Status.FLAKY


def cell(feature: str, status: Status, looks: int, figure: float | None = None, endpoint: str = "tpu") -> Cell:
    held = Finding(
        check="a-check",
        outcome=Outcome.HELD,
        why="w",
        level=Level.MUST,
        measured={} if figure is None else {"ttft_s": figure},
    )
    trials = (status,) * looks if status is not F else (S, B, S)
    return Cell(
        feature=feature, endpoint=endpoint, status=status, reason=f"{feature} {status}", trials=trials, findings=(held,)
    )


def night(number: int, cells: list[Cell], *, version: str = "1.0", endpoints: tuple[str, ...] = ("tpu",)) -> RunReport:
    known = Fingerprint(
        fields={
            "engine": Known(value="vllm", how=How.OBSERVED, source="s"),
            "engine_version": Known(value=version, how=How.OBSERVED, source="s"),
        }
    )
    return RunReport(
        id=f"run-{number:03}",
        started=FIRST + timedelta(days=number),
        finished=FIRST + timedelta(days=number, minutes=5),
        complete=True,
        suite="standard",
        command=(),
        tool_version="0.1",
        probes_digest="abc",
        requests=1,
        subjects=tuple(
            Subject(endpoint=Endpoint(name=name, base_url="http://h/v1"), fingerprint=known) for name in endpoints
        ),
        features=FEATURES,
        cells=tuple(cells),
        groups=(),
        verdict=Verdict(decision=Decision.READY, sentence="Yes."),
    )


def nights(path: Path, statuses: list[Status], looks: int = 1) -> History:
    kept = History(path)
    for number, status in enumerate(statuses):
        kept.add(night(number, [cell("chat.stop", status, 3 if status is not S else looks)]))
    return kept


def test_of_200_nights_all_that_was_planted_is_told_and_nothing_else(tmp_path: Path) -> None:
    dice = random.Random(7)
    flips = {"chat.stop": (60, B), "tools.auto": (120, Status.IGNORED), "logprobs.chat": (199, Status.UNSUPPORTED)}
    flakes = {"chat.n": set(dice.sample(range(200), 9)), "structured.stream": {17}}
    drifts = {"prefix_cache.reuse": 0.3, "streaming.usage": -0.25}
    with History(tmp_path / "history.sqlite") as kept:
        for number in range(200):
            cells = []
            for row in ROWS:
                status, looks = S, 1
                if row.id in flips and number >= flips[row.id][0]:
                    status, looks = flips[row.id][1], 3
                if number in flakes.get(row.id, ()):
                    status = F
                level = 0.4 * (1 + drifts.get(row.id, 0) * number / 199)
                cells.append(cell(row.id, status, looks, level * dice.lognormvariate(0, 0.05)))
            kept.add(night(number, cells, version="1.0" if number < 100 else "1.1"))
        began = time.process_time()
        found, wavering, trends = kept.told()
        took = time.process_time() - began
    assert [(each.feature, each.run, each.after, each.told) for each in found] == [
        ("chat.stop", "run-060", "broken", Told.CONFIRMED),
        ("tools.auto", "run-120", "ignored", Told.CONFIRMED),
        ("logprobs.chat", "run-199", "unsupported", Told.CONFIRMED),
    ]
    assert {each.feature: each.odd for each in wavering} == {"chat.n": 9, "structured.stream": 1}
    assert {each.feature: each.last > each.first for each in trends} == {
        "prefix_cache.reuse": True,
        "streaming.usage": False,
    }
    assert took < 1.0


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_is_no_trend(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with History(tmp_path / "history.sqlite") as kept:
        for number in range(200):
            kept.add(night(number, [cell(row.id, S, 1, dice.lognormvariate(0, 0.3)) for row in ROWS[:40]]))
        assert kept.told() == ([], [], [])


@pytest.mark.parametrize(
    ("statuses", "flips", "odd"),
    [
        ([S, S, B, B, B], [("run-002", "broken", Told.CONFIRMED)], 0),
        ([S, S, B, S, S], [], 1),
        ([S, S, S, B], [("run-003", "broken", Told.CONFIRMED)], 0),
        ([B, B, B, S], [("run-003", "supported", Told.ONCE)], 0),
        ([B, B, S, S], [("run-002", "supported", Told.CONFIRMED)], 0),
        ([S, F, S, F, S], [], 2),
        ([S, F, B, B], [("run-002", "broken", Told.CONFIRMED)], 1),
        ([S, Status.ERROR, S, Status.INCONCLUSIVE], [], 0),
        ([S, Status.ERROR, B, B], [("run-002", "broken", Told.CONFIRMED)], 0),
        ([F, F], [], 2),
    ],
)
def test_a_change_is_what_stayed_and_a_waver_is_what_went_away(
    tmp_path: Path, statuses: list[Status], flips: list[tuple[str, str, Told]], odd: int
) -> None:
    with nights(tmp_path / "h", statuses) as kept:
        found, wavering, _ = kept.told()
    assert [(each.run, each.after, each.told) for each in found] == flips
    assert [each.odd for each in wavering] == [odd] * bool(odd)


def test_the_last_run_is_compared_with_the_one_before_or_with_the_one_that_is_named(tmp_path: Path) -> None:
    with History(tmp_path / "h") as kept:
        for number, (status, version) in enumerate([(B, "1.0"), (S, "1.1"), (B, "1.2"), (B, "1.2")]):
            kept.add(night(number, [cell("chat.stop", status, 3)], version=version))
        assert kept.changed() == []
        assert kept.changed("1.1") == [("tpu", "chat.stop", "supported", "broken", "run-001")]
        assert kept.changed("run-000") == []
        assert kept.changed("2026-05-03") == [("tpu", "chat.stop", "supported", "broken", "run-001")]
        with pytest.raises(UsageError, match=r"--since 9\.9"):
            kept.changed("9.9")


def test_a_run_that_is_added_again_replaces_itself(tmp_path: Path) -> None:
    with History(tmp_path / "h") as kept:
        kept.add(night(0, [cell("chat.stop", B, 3)]))
        kept.add(night(0, [cell("chat.stop", S, 3)]))
        assert [run for run, *_ in kept.runs()] == ["run-000"]
        ((_, _, seen),) = kept.series()
        assert [each.said for each in seen] == ["supported"]


def test_only_the_latest_runs_are_kept_where_asked(tmp_path: Path) -> None:
    with nights(tmp_path / "h", [S] * 5) as kept:
        kept.add(night(5, [cell("chat.stop", S, 1)]), keep=3)
        assert [run for run, *_ in kept.runs()] == ["run-003", "run-004", "run-005"]
        kept.prune(1)
        assert [len(seen) for *_, seen in kept.series()] == [1]


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    def write(start: int) -> None:
        with History(tmp_path / "h") as kept:
            for number in range(start, 40, 4):
                kept.add(night(number, [cell(row.id, S, 1) for row in ROWS[:20]]))

    writers = [threading.Thread(target=write, args=(start,)) for start in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with History(tmp_path / "h") as kept:
        assert len(kept.runs()) == 40
        assert {len(seen) for *_, seen in kept.series()} == {40}


def test_a_writer_that_dies_half_way_leaves_the_runs_before_it(tmp_path: Path) -> None:
    with nights(tmp_path / "h", [S, S]) as kept:
        wrong = replace(night(2, [cell("chat.stop", S, 1)]), cells=(cell("chat.stop", S, 1), cell("chat.stop", S, 1)))
        with pytest.raises(StoreError):
            kept.add(wrong)
        assert len(kept.runs()) == 2
        assert {run for run, *_ in kept.runs()} == {"run-000", "run-001"}


@pytest.mark.parametrize("text", ["not a database at all, but long enough to be taken for one" * 40, ""])
def test_a_file_that_is_no_history_is_an_error_or_begins_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "h").write_text(text)
    if text:
        with pytest.raises(StoreError, match="file is not a database"):
            History(tmp_path / "h")
    else:
        with History(tmp_path / "h") as kept:
            assert kept.runs() == []


def test_a_history_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "h")
    base.execute("PRAGMA user_version = 2")
    base.commit()
    base.close()
    with pytest.raises(StoreError, match="later version"):
        History(tmp_path / "h")


def test_a_run_says_what_changed_since_the_last_and_still_does_when_judged_again(tmp_path: Path) -> None:
    with History(tmp_path / "h") as kept:
        lab = Lab(tmp_path / "a", {"e": Odd()})
        first = lab.run()
        kept.add(first)
        second = Lab(tmp_path / "b", {"e": Odd(answers(500))}).run(previous=previous_of(kept, ["e", "other"]))
        kept.add(second)
        told = kept.changed()
    assert [(each.feature, each.before, each.after, each.told) for each in second.since] == [
        ("chat.basic", "supported", "broken", "confirmed")
    ]
    assert second.compared_with == {"e": f"{first.id} of {first.started:%Y-%m-%d}"}
    assert told == [("e", "chat.basic", "supported", "broken", first.id)]


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ([Status.ERROR], True),
        ([Status.INCONCLUSIVE, Status.ERROR, Status.ERROR], True),
        ([], True),
        ([B], False),
    ],
)
def test_a_night_that_decided_nothing_hides_no_change(tmp_path: Path, between: list[Status], expected: bool) -> None:
    with nights(tmp_path / "h", [S, *between]) as kept:
        [seen] = changes(previous_of(kept, ["tpu"]), [cell("chat.stop", B, 3)]) or [None]
    assert (seen is not None) is expected
    if seen is not None:
        assert (seen.before, seen.after, seen.run) == ("supported", "broken", "run-000")
    with nights(tmp_path / "g", [S, *between, B]) as kept:
        told = [("tpu", "chat.stop", "supported", "broken", "run-000")]
        assert kept.changed() == (told if expected else [])


def test_of_one_run_it_is_said_that_there_is_nothing_to_compare_it_with(tmp_path: Path) -> None:
    with nights(tmp_path / "h", [S]) as kept:
        assert "it is the first run" in as_text(kept.runs(), kept.changed(), kept.told(), None)


def test_what_could_not_be_told_is_no_change() -> None:
    before: dict[str, Json] = {
        "tpu": {"run": "r", "started": "2026-01-01T00:00:00", "cells": {"chat.stop": "supported"}}
    }
    for status, told in ((B, 1), (S, 0), (Status.ERROR, 0), (Status.INCONCLUSIVE, 0), (Status.SKIPPED, 0)):
        assert len(changes(before, [cell("chat.stop", status, 1)])) == told


def test_a_history_reads_as_text_and_as_json(tmp_path: Path) -> None:
    with nights(tmp_path / "h", [S, S, B, B, F]) as kept:
        told, changed, runs = kept.told(), kept.changed(), kept.runs()
    text = as_text(runs, changed, told, None)
    assert "5 runs, 2026-05-01 to 2026-05-05" in text
    assert "chat.stop on tpu: supported → broken  (run run-002)" in text
    assert "otherwise in 1 of 5 runs" in text
    data = json.loads(json.dumps(told_as_json(runs, changed, told)))
    assert [each["row"] for each in data["flips"]] == ["chat.stop"]
    assert len(data["runs"]) == 5
    assert as_text([], [], ([], [], []), None) == "no runs"
