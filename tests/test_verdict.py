"""From rows to an answer, its sentence and an exit code: every table of the contract, cell by cell."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from servecheck import verdict
from servecheck.compare import compare
from servecheck.features import FEATURES, get
from servecheck.model import (
    DECIDED,
    Comparison,
    Decision,
    Delta,
    Level,
    Status,
    Verdict,
)
from servecheck.verdict import FailOn
from tests.cells import row

BROKEN, FLAKY, IGNORED = Status.BROKEN, Status.FLAKY, Status.IGNORED
UNSUPPORTED, DEGRADED, SUPPORTED = Status.UNSUPPORTED, Status.DEGRADED, Status.SUPPORTED
ERROR, INCONCLUSIVE, SKIPPED = Status.ERROR, Status.INCONCLUSIVE, Status.SKIPPED
MUST, SHOULD = Level.MUST, Level.SHOULD
CHAT = get("chat.basic")


# --------------------------------------------------------------------------- rows → verdict


def alone(**statuses: Status) -> Verdict:
    """Return the verdict on one endpoint; names use two underscores for the dot."""
    cells = [row(name.replace("__", "."), "gpu", status) for name, status in statuses.items()]
    return verdict.decide(cells, (), FEATURES, reference=None)


@pytest.mark.parametrize(
    ("decision", "core", "extended"),
    [
        *[(Decision.NOT_READY, core, SUPPORTED) for core in (BROKEN, FLAKY, IGNORED, UNSUPPORTED)],
        *[(Decision.CANNOT_TELL, core, SUPPORTED) for core in (ERROR, INCONCLUSIVE)],
        (Decision.READY_WITH_CAVEATS, DEGRADED, SUPPORTED),
        *[(Decision.READY, core, SUPPORTED) for core in (SKIPPED, SUPPORTED)],
        *[
            (Decision.READY_WITH_CAVEATS, SUPPORTED, extended)
            for extended in (BROKEN, FLAKY, IGNORED, UNSUPPORTED, DEGRADED)
        ],
        *[(Decision.READY, SUPPORTED, extended) for extended in (ERROR, INCONCLUSIVE, SKIPPED)],
        (Decision.CANNOT_TELL, ERROR, BROKEN),
        (Decision.NOT_READY, BROKEN, BROKEN),
    ],
)
def test_without_a_reference_core_rows_decide(decision, core, extended):
    found = alone(chat__basic=SUPPORTED, chat__stop=core, chat__n=extended)
    assert found.decision is decision
    assert found.blockers == (("chat.stop@gpu",) if decision is Decision.NOT_READY else ())
    assert found.unknown == (("chat.stop@gpu",) if core in (ERROR, INCONCLUSIVE) else ())


def test_a_blocker_outranks_what_is_unknown():
    found = alone(chat__basic=BROKEN, chat__stop=ERROR)
    assert (found.decision, found.blockers, found.unknown) == (
        Decision.NOT_READY,
        ("chat.basic@gpu",),
        ("chat.stop@gpu",),
    )


@pytest.mark.parametrize("statuses", [{}, {"chat__basic": SKIPPED}, {"chat__n": SUPPORTED}])
def test_nothing_decided_among_core_rows_is_never_a_yes(statuses):
    assert alone(**statuses).decision is Decision.CANNOT_TELL


def test_properties_and_comparisons_decide_nothing_alone():
    cells = [
        row("chat.basic", "gpu", SUPPORTED),
        row("sampling.greedy", "gpu", ERROR),
        row("parity.greedy", "gpu", BROKEN),
    ]
    assert verdict.decide(cells, (), FEATURES, reference=None).decision is Decision.READY


def test_a_lone_reference_is_judged_like_any_endpoint():
    cells = [row("chat.basic", "gpu", BROKEN)]
    assert verdict.decide(cells, (), FEATURES, reference="gpu").blockers == ("chat.basic@gpu",)


def moved(
    rows: Mapping[str, tuple[Status, Status]],
    *,
    profile_core: frozenset[str] | None = None,
    extra: Sequence[Comparison] = (),
) -> Verdict:
    """Return the verdict on moving from gpu to tpu; ``rows`` maps a feature to the statuses of both."""
    cells = [row(name, e, s) for name, both in rows.items() for e, s in zip(("gpu", "tpu"), both, strict=True)]
    comparisons = [*compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={}), *extra]
    return verdict.decide(cells, comparisons, FEATURES, reference="gpu", profile_core=profile_core)


@pytest.mark.parametrize(("left", "right"), [*itertools.product(Status, Status)])
def test_with_a_reference_only_a_core_row_that_got_worse_blocks(left, right):
    found = moved({"chat.basic": (SUPPORTED, SUPPORTED), "chat.stop": (left, right)})
    best_first = [SUPPORTED, DEGRADED, FLAKY, UNSUPPORTED, IGNORED, BROKEN]
    if left in DECIDED and right in DECIDED:
        worse = best_first.index(right) > best_first.index(left)
        expected = Decision.NOT_READY if worse else Decision.READY
    elif {left, right} & {ERROR, INCONCLUSIVE}:
        expected = Decision.CANNOT_TELL
    else:
        # Skipped on the candidate although the reference has it: worth a look. Skipped on the reference: no news.
        expected = Decision.READY_WITH_CAVEATS if left in DECIDED else Decision.READY
    assert found.decision is expected
    assert found.blockers == (("chat.stop@tpu",) if expected is Decision.NOT_READY else ())
    assert found.caveats == (("chat.stop@tpu",) if expected is Decision.READY_WITH_CAVEATS else ())
    undecided = [("gpu", left), ("tpu", right)]
    assert found.unknown == tuple(f"chat.stop@{e}" for e, status in undecided if status in (ERROR, INCONCLUSIVE))


@pytest.mark.parametrize(
    ("expected", "pair"),
    [
        (Decision.READY_WITH_CAVEATS, (SUPPORTED, BROKEN)),
        (Decision.READY_WITH_CAVEATS, (SUPPORTED, DEGRADED)),
        (Decision.READY, (DEGRADED, DEGRADED)),
        (Decision.READY, (BROKEN, SUPPORTED)),
        (Decision.READY, (SUPPORTED, ERROR)),
    ],
)
def test_an_extended_row_that_got_worse_is_a_caveat(expected, pair):
    assert moved({"chat.basic": (SUPPORTED, SUPPORTED), "chat.n": pair}).decision is expected


def comparison(feature: str, delta: Delta, *, side: str | None = None) -> Comparison:
    return Comparison(left="gpu", right="tpu", feature=feature, delta=delta, why="", side=side)


@pytest.mark.parametrize(
    ("expected", "feature", "delta"),
    [
        (Decision.NOT_READY, "chat.stop", Delta.DRIFT),
        (Decision.CANNOT_TELL, "chat.stop", Delta.UNCLEAR),
        (Decision.READY, "chat.stop", Delta.SAME),
        (Decision.READY_WITH_CAVEATS, "parity.greedy", Delta.DRIFT),
        (Decision.READY, "parity.greedy", Delta.UNCLEAR),
    ],
)
def test_measured_drift_blocks_on_core_rows(expected, feature, delta):
    rows = {"chat.basic": (SUPPORTED, SUPPORTED), feature: (SUPPORTED, SUPPORTED)}
    assert moved(rows, extra=[comparison(feature, delta)]).decision is expected


def test_a_profile_says_which_rows_are_core():
    rows = {"chat.n": (SUPPORTED, IGNORED), "chat.stop": (SUPPORTED, BROKEN), "chat.basic": (SUPPORTED, SUPPORTED)}
    found = moved(rows, profile_core=frozenset({"chat.n", "chat.basic"}))
    assert (found.blockers, found.caveats) == (("chat.n@tpu",), ("chat.stop@tpu",))
    assert found.sentence == "No: tpu is behind gpu on 1 of 2 profile rows (chat.n ignored)."


def test_a_profile_may_raise_a_comparison_row():
    rows = {"chat.basic": (SUPPORTED, SUPPORTED), "parity.greedy": (SUPPORTED, SUPPORTED)}
    profile = frozenset(rows)
    drifted = moved(rows, profile_core=profile, extra=[comparison("parity.greedy", Delta.DRIFT)])
    assert drifted.blockers == ("parity.greedy@tpu",)
    assert moved(rows, profile_core=profile).unknown == ("parity.greedy@tpu",)


def test_a_comparison_that_nobody_made_is_not_taken_for_a_pass():
    cells = [row("chat.basic", endpoint, SUPPORTED) for endpoint in ("gpu", "tpu")]
    found = verdict.decide(cells, (), FEATURES, reference="gpu")
    assert (found.decision, found.unknown) == (Decision.CANNOT_TELL, ("chat.basic@tpu",))


def test_comparisons_with_another_left_side_are_left_alone():
    other = Comparison(left="old", right="tpu", feature="chat.stop", delta=Delta.DRIFT, why="")
    assert moved({"chat.stop": (SUPPORTED, SUPPORTED)}, extra=[other]).decision is Decision.READY


def test_every_candidate_must_be_ready():
    cells = [row("chat.stop", e, BROKEN if e == "tpu" else SUPPORTED) for e in ("new", "gpu", "tpu")]
    comparisons = [
        each for e in ("new", "tpu") for each in compare(cells, FEATURES, left="gpu", right=e, fingerprints={})
    ]
    found = verdict.decide(cells, comparisons, FEATURES, reference="gpu")
    assert (found.decision, found.blockers) == (Decision.NOT_READY, ("chat.stop@tpu",))


def test_what_is_unknown_of_the_reference_is_listed_once():
    cells = [row("chat.stop", e, ERROR if e == "gpu" else SUPPORTED) for e in ("gpu", "tpu", "new")]
    comparisons = [
        each for e in ("tpu", "new") for each in compare(cells, FEATURES, left="gpu", right=e, fingerprints={})
    ]
    assert verdict.decide(cells, comparisons, FEATURES, reference="gpu").unknown == ("chat.stop@gpu",)


BOTH = (SUPPORTED, SUPPORTED)


@pytest.mark.parametrize(
    ("sentence", "rows"),
    [
        (
            "Yes: tpu is not behind gpu on any of 2 core rows; 42 core rows not run.",
            {"chat.basic": BOTH, "chat.stop": BOTH, "chat.n": BOTH},
        ),
        (
            (
                "No: tpu is behind gpu on 2 of 3 core rows (chat.stop broken, structured.json_schema ignored); "
                "41 core rows not run."
            ),
            {"chat.basic": BOTH, "structured.json_schema": (SUPPORTED, IGNORED), "chat.stop": (SUPPORTED, BROKEN)},
        ),
        (
            (
                "No: tpu is behind gpu on 1 of 4 core rows (chat.stop broken); 1 undecided; 1 broken on both; "
                "40 core rows not run."
            ),
            {
                "chat.stop": (SUPPORTED, BROKEN),
                "chat.basic": (BROKEN, BROKEN),
                "tools.auto": (ERROR, INCONCLUSIVE),
                "tools.named": (SKIPPED, SKIPPED),
                "tools.stream": BOTH,
            },
        ),
        (
            (
                "No: tpu is behind gpu on 6 of 6 core rows (streaming.frames broken, streaming.incremental broken, "
                "streaming.equals_non_stream broken, streaming.usage broken and 2 more); 38 core rows not run."
            ),
            {each.id: (SUPPORTED, BROKEN) for each in FEATURES if each.group == "streaming" and each.core},
        ),
        (
            (
                "Yes, with caveats: tpu is not behind gpu on any of 1 core row; 2 caveats (chat.stop skipped, "
                "chat.n ignored); 43 core rows not run."
            ),
            {"chat.basic": BOTH, "chat.stop": (SUPPORTED, SKIPPED), "chat.n": (DEGRADED, IGNORED)},
        ),
        (
            (
                "Cannot tell: no core row is known to be behind, but 2 are undecided (chat.stop@gpu error, "
                "chat.stop@tpu error, tools.auto@tpu inconclusive); 41 core rows not run."
            ),
            {"chat.basic": BOTH, "chat.stop": (ERROR, ERROR), "tools.auto": (SUPPORTED, INCONCLUSIVE)},
        ),
        (
            "Cannot tell: no core row was decided on tpu against gpu; 44 core rows not run.",
            {"chat.n": BOTH},
        ),
        (
            "Yes: tpu is not behind gpu on any of 44 core rows.",
            {each.id: BOTH for each in FEATURES if each.core},
        ),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_the_sentence_of_a_move(sentence, rows):
    assert moved(rows).sentence == sentence


@pytest.mark.parametrize(
    ("sentence", "statuses"),
    [
        ("Yes: gpu falls short on none of 2 core rows", {"chat__basic": SUPPORTED, "chat__stop": SUPPORTED}),
        (
            "Yes, with caveats: gpu falls short on none of 1 core row; 2 caveats (chat.stop degraded, chat.n broken)",
            {"chat__stop": DEGRADED, "chat__n": BROKEN},
        ),
        ("No: gpu falls short on 1 of 1 core row (chat.stop flaky)", {"chat__stop": FLAKY}),
        (
            "Cannot tell: no core row is known to fall short, but 1 is undecided (chat.stop@gpu error)",
            {"chat__stop": ERROR},
        ),
        ("Cannot tell: no core row was decided on gpu", {"chat__n": SUPPORTED}),
    ],
)
def test_the_sentence_about_one_endpoint(sentence, statuses):
    assert alone(**statuses).sentence.startswith(sentence)


def test_the_sentence_tells_drift_from_being_behind():
    rows = {"chat.stop": BOTH, "chat.basic": BOTH, "tools.auto": (SUPPORTED, BROKEN)}
    profile = frozenset(rows)
    drift = [comparison("chat.stop", Delta.DRIFT)]
    assert moved(rows, profile_core=profile, extra=drift).sentence == (
        "No: tpu is behind gpu on 1 of 3 profile rows (tools.auto broken) and drifted on 1 (chat.stop)."
    )
    del rows["tools.auto"]
    assert moved(rows, profile_core=frozenset(rows), extra=drift).sentence == (
        "No: tpu drifted from gpu on 1 of 2 profile rows (chat.stop)."
    )


def test_the_sentence_names_each_candidate():
    cells = [row("chat.stop", e, SUPPORTED if e == "gpu" else BROKEN) for e in ("gpu", "tpu", "new")]
    comparisons = [
        each for e in ("tpu", "new") for each in compare(cells, FEATURES, left="gpu", right=e, fingerprints={})
    ]
    found = verdict.decide(cells, comparisons, FEATURES, reference="gpu", profile_core=frozenset({"chat.stop"}))
    assert found.sentence == (
        "No: tpu is behind gpu on 1 of 1 profile row (chat.stop broken); "
        "new is behind gpu on 1 of 1 profile row (chat.stop broken)."
    )


# --------------------------------------------------------------------------- verdict → exit

SAFE = Verdict(decision=Decision.READY, sentence="")
BLOCKED = Verdict(decision=Decision.NOT_READY, sentence="", blockers=("chat.stop@tpu",))
UNKNOWN = Verdict(decision=Decision.CANNOT_TELL, sentence="", unknown=("chat.stop@tpu",))


@pytest.mark.parametrize(
    ("blocker", "behind", "any_", "answer", "cells", "comparisons"),
    [
        (0, 0, 0, SAFE, [row("chat.stop", "tpu", SUPPORTED)], []),
        (0, 0, 0, SAFE, [row("chat.stop", "tpu", SKIPPED)], []),
        (1, 1, 1, BLOCKED, [], []),
        (4, 4, 4, UNKNOWN, [], []),
        (0, 0, 1, SAFE, [row("chat.stop", "gpu", DEGRADED)], []),
        (0, 0, 1, SAFE, [row("chat.n", "gpu", UNSUPPORTED)], []),
        (0, 0, 0, SAFE, [row("chat.n", "gpu", ERROR)], []),
        (0, 0, 0, SAFE, [row("parity.greedy", "gpu", BROKEN)], []),
        (0, 1, 1, SAFE, [], [comparison("chat.n", Delta.BEHIND, side="tpu")]),
        (0, 0, 0, SAFE, [], [comparison("chat.n", Delta.BEHIND, side="gpu")]),
        (0, 1, 1, SAFE, [], [comparison("parity.greedy", Delta.DRIFT)]),
        (0, 0, 0, SAFE, [], [comparison("parity.greedy", Delta.UNCLEAR)]),
        (4, 1, 1, UNKNOWN, [], [comparison("chat.n", Delta.BEHIND, side="tpu")]),
    ],
)
def test_exit_codes(blocker, behind, any_, answer, cells, comparisons):
    found = [
        verdict.exit_code(answer, cells, comparisons, FEATURES, has_reference=True, fail_on=fail_on)
        for fail_on in (FailOn.BLOCKER, FailOn.BEHIND, FailOn.ANY)
    ]
    assert found == [blocker, behind, any_]


@pytest.mark.parametrize(
    ("expected", "has_reference", "has_profile"),
    [(FailOn.ANY, False, False), (FailOn.BLOCKER, True, False), (FailOn.BLOCKER, False, True)],
)
def test_what_a_run_fails_on_by_default(expected, has_reference, has_profile):
    flags = {"has_reference": has_reference, "has_profile": has_profile}
    assert verdict.default_fail_on(**flags) is expected
    code = verdict.exit_code(SAFE, [row("chat.n", "gpu", DEGRADED)], [], FEATURES, **flags)
    assert code == (1 if expected is FailOn.ANY else 0)


@pytest.mark.parametrize(
    ("expected", "answer", "excused", "stale"),
    [
        (0, BLOCKED, {"chat.stop@tpu"}, False),
        (1, BLOCKED, {"chat.stop@gpu"}, False),
        (0, UNKNOWN, {"chat.stop@tpu"}, False),
        (1, SAFE, set(), True),
        (1, UNKNOWN, set(), True),
    ],
)
def test_expectations_excuse_rows_and_fail_when_stale(expected, answer, excused, stale):
    code = verdict.exit_code(answer, [], [], FEATURES, has_reference=True, excused=excused, stale=stale)
    assert code == expected


def test_a_row_that_fails_twice_over_is_listed_once():
    found = verdict.failures(
        BLOCKED,
        [row("chat.stop", "tpu", BROKEN)],
        [comparison("chat.stop", Delta.BEHIND, side="tpu")],
        FEATURES,
        fail_on=FailOn.ANY,
    )
    assert found == ("chat.stop@tpu",)
