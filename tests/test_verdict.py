"""From findings to a status, a row, a group, an answer and an exit code: every table of the contract, cell by cell."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from servecheck import verdict
from servecheck.compare import compare
from servecheck.features import FEATURES, get
from servecheck.model import (
    DECIDED,
    Cell,
    Comparison,
    Decision,
    Delta,
    Fault,
    FaultKind,
    How,
    Kind,
    Level,
    Mode,
    Outcome,
    Route,
    Status,
    Trial,
    Verdict,
)
from servecheck.verdict import FailOn
from tests.cells import finding, observed, row, says, trial, trial_of, valued

BROKEN, FLAKY, IGNORED = Status.BROKEN, Status.FLAKY, Status.IGNORED
UNSUPPORTED, DEGRADED, SUPPORTED = Status.UNSUPPORTED, Status.DEGRADED, Status.SUPPORTED
ERROR, INCONCLUSIVE, SKIPPED = Status.ERROR, Status.INCONCLUSIVE, Status.SKIPPED
MUST, SHOULD = Level.MUST, Level.SHOULD
CHAT = get("chat.basic")


# --------------------------------------------------------------------------- findings → trial


@pytest.mark.parametrize(
    ("must", "should", "outcome"),
    [
        (BROKEN, DEGRADED, Outcome.VIOLATED),
        (IGNORED, DEGRADED, Outcome.NO_EFFECT),
        (UNSUPPORTED, DEGRADED, Outcome.REFUSED),
        (INCONCLUSIVE, SUPPORTED, Outcome.UNDETERMINED),
        (SUPPORTED, SUPPORTED, Outcome.HELD),
    ],
)
def test_an_outcome_makes_a_status_by_its_level(must, should, outcome):
    assert verdict.trial_status([finding(outcome, MUST, why="because")]) == (must, "because")
    beside = finding(Outcome.HELD, SHOULD, check="another", why="held")
    why = "held" if outcome is Outcome.UNDETERMINED else "because"
    assert verdict.trial_status([finding(outcome, SHOULD, check="z", why="because"), beside]) == (should, why)


@pytest.mark.parametrize("worse", range(6))
def test_a_trial_takes_the_worst_of_its_checks_and_its_reason(worse):
    order = [BROKEN, IGNORED, UNSUPPORTED, DEGRADED, INCONCLUSIVE, SUPPORTED]
    findings = [says(status, check=f"c{place}") for place, status in enumerate(order[worse:])]
    for given in (findings, findings[::-1]):
        assert verdict.trial_status(given) == (order[worse], f"why {order[worse]}")


@pytest.mark.parametrize(
    ("status", "reason", "kwargs"),
    [
        (INCONCLUSIVE, "nothing was judged", {}),
        (ERROR, "refused", {"fault": Fault(kind=FaultKind.UNREACHABLE, reason="refused")}),
        (SKIPPED, "skipped (budget)", {"skip_code": "budget"}),
        (SUPPORTED, "saw a; saw b", {"observed": [observed("a"), observed("b")]}),
    ],
)
def test_a_trial_without_findings(status, reason, kwargs):
    assert verdict.trial_status([], **kwargs) == (status, reason)


def test_a_fault_is_error_whatever_the_findings_are():
    fault = Fault(kind=FaultKind.DENIED, reason="401 for the canary too")
    assert verdict.trial_status([says(BROKEN)], fault=fault) == (ERROR, "401 for the canary too")


def test_findings_without_effect_alone_are_no_evidence_of_support():
    undecided = finding(Outcome.UNDETERMINED, SHOULD, why="two tokens are too few")
    assert verdict.trial_status([undecided]) == (INCONCLUSIVE, "two tokens are too few")


def test_a_must_speaks_before_a_should_of_the_same_status():
    findings = [finding(level=SHOULD, check="a", why="nice"), finding(level=MUST, check="b", why="needed")]
    assert verdict.trial_status(findings) == (SUPPORTED, "needed")


def test_the_first_must_of_the_probe_speaks_for_all_that_held():
    findings = [finding(level=SHOULD, check="a", why="nice")]
    findings += [finding(level=MUST, check=check, why=f"{check} held") for check in "zbc"]
    assert verdict.trial_status(findings) == (SUPPORTED, "z held")


# --------------------------------------------------------------------------- trials → part


@pytest.mark.parametrize(
    ("expected", "trials"),
    [
        ("supported", "supported"),
        ("supported", "supported supported supported"),
        ("broken", "broken broken"),
        ("ignored", "ignored ignored"),
        ("flaky", "supported broken supported"),
        ("flaky", "broken ignored"),
        ("flaky", "supported degraded"),
        ("supported", "error supported inconclusive"),
        ("broken", "inconclusive broken error skipped"),
        ("flaky", "error supported broken"),
        ("degraded", "skipped degraded"),
        ("error", "error inconclusive"),
        ("error", "skipped error"),
        ("inconclusive", "inconclusive inconclusive"),
        ("inconclusive", "skipped inconclusive"),
        ("skipped", "skipped skipped"),
    ],
)
def test_trials_make_a_part_in_any_order(expected, trials):
    statuses = [Status(name) for name in trials.split()]
    for given in itertools.permutations(statuses):
        assert verdict.part_status([(status, f"why {status}") for status in given])[0] is Status(expected)
        made = [trial_of(status, number) for number, status in enumerate(given, 1)]
        assert verdict.cell(CHAT, "e", made).status is Status(expected)


def test_flaky_says_how_many_did_what_and_why_the_worst_did():
    made = [trial_of(SUPPORTED, 1), trial_of(BROKEN, 2), trial_of(SUPPORTED, 3)]
    cell = verdict.cell(CHAT, "e", made)
    assert cell.reason == "3 trials disagree: 2 supported, 1 broken (why broken)"
    assert (cell.status.mark, cell.tally) == ("🎲", "2/3")


def test_invalid_trials_are_shown_but_not_tallied():
    cell = verdict.cell(CHAT, "e", [trial_of(SUPPORTED, 1), trial_of(ERROR, 2), trial_of(SUPPORTED, 3)])
    assert (cell.trials, cell.tally) == ((SUPPORTED, ERROR, SUPPORTED), "2/2")
    assert [fault.reason for fault in cell.faults] == ["why error"]


# --------------------------------------------------------------------------- parts → row


def part(status: Status, route: Route = Route.CHAT, mode: Mode = Mode.NON_STREAM, scenario: str = "s") -> verdict.Part:
    return verdict.Part(scenario=scenario, route=route, mode=mode, status=status, reason=f"why {status}")


def test_the_order_of_badness_names_each_status_once_and_ends_green():
    assert sorted(verdict.WORST_FIRST) == sorted(Status)
    assert verdict.WORST_FIRST[-1] is SUPPORTED


@pytest.mark.parametrize(("one", "other"), [*itertools.product(Status, Status)])
def test_of_two_core_parts_the_worse_makes_the_row(one, other):
    named = [BROKEN, FLAKY, IGNORED, UNSUPPORTED, DEGRADED, ERROR, INCONCLUSIVE, SKIPPED, SUPPORTED]
    expected = min(one, other, key=named.index)
    for parts in ([part(one), part(other, mode=Mode.STREAM)], [part(other, scenario="t"), part(one)]):
        assert verdict.roll_up(parts) == (expected, f"why {expected}")


@pytest.mark.parametrize(
    ("expected", "core", "extended"),
    [
        # A decided shortfall takes the green away and does no more than that.
        *[(DEGRADED, SUPPORTED, status) for status in (BROKEN, FLAKY, IGNORED, UNSUPPORTED, DEGRADED)],
        *[(SUPPORTED, SUPPORTED, status) for status in (ERROR, INCONCLUSIVE, SKIPPED, SUPPORTED)],
        *[(core, core, BROKEN) for core in Status if core is not SUPPORTED],
        *[(core, core, SUPPORTED) for core in Status],
    ],
)
@pytest.mark.parametrize("route", [Route.COMPLETIONS, Route.RESPONSES, Route.GENERATE])
def test_other_routes_are_extended_beside_the_chat_route(expected, core, extended, route):
    parts = [part(core), part(extended, route)]
    assert verdict.roll_up(parts)[0] is expected
    assert verdict.roll_up(parts[::-1]) == verdict.roll_up(parts)


def test_a_shortfall_of_an_extended_part_is_named_in_the_reason():
    streamed = part(BROKEN, Route.COMPLETIONS, Mode.STREAM)
    assert verdict.roll_up([part(SUPPORTED), streamed])[1] == "completions, streamed: broken: why broken"
    assert verdict.roll_up([part(ERROR), streamed])[1] == "why error; also completions, streamed: broken"


def test_what_belongs_to_no_route_is_core_beside_the_chat_route():
    assert verdict.roll_up([part(SUPPORTED), part(BROKEN, Route.NONE, Mode.NONE)])[0] is BROKEN


@pytest.mark.parametrize("status", [*Status])
def test_a_row_without_the_chat_route_is_judged_by_all_its_parts(status):
    assert verdict.roll_up([part(status, Route.COMPLETIONS)])[0] is status
    beside = [part(SUPPORTED, Route.NONE, Mode.NONE), part(SUPPORTED, Route.RESPONSES)]
    assert verdict.roll_up([*beside, part(status, Route.COMPLETIONS)])[0] is status


@pytest.mark.parametrize(
    ("expected", "findings"),
    [
        ("", [says(SUPPORTED)]),
        ("2 of 2 parts", [says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM)]),
        ("1 of 2 parts", [says(SUPPORTED), says(INCONCLUSIVE, route=Route.COMPLETIONS)]),
        ("1 of 3 parts", [says(SUPPORTED), says(BROKEN, mode=Mode.STREAM), says(DEGRADED, route=Route.RESPONSES)]),
    ],
)
def test_a_row_of_several_parts_tallies_them(expected, findings):
    assert verdict.cell(CHAT, "e", [trial(1, *findings)]).parts == expected


def test_a_fault_counts_for_every_part_its_scenario_showed():
    both = [says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM)]
    cell = verdict.cell(CHAT, "e", [trial(1, *both), trial(2, fault="cut off"), trial(3, *both)])
    assert (cell.status, cell.trials, cell.parts) == (SUPPORTED, (SUPPORTED, ERROR, SUPPORTED), "2 of 2 parts")


def test_a_scenario_that_only_failed_is_one_core_part_of_its_own():
    made = [trial(1, says(SUPPORTED), scenario="a"), trial(1, fault="cut off", scenario="b")]
    cell = verdict.cell(CHAT, "e", made)
    assert (cell.status, cell.reason, cell.parts) == (ERROR, "cut off", "1 of 2 parts")


def test_a_scenario_that_only_failed_leaves_a_row_without_chat_to_its_parts():
    broken = trial(1, says(BROKEN, route=Route.COMPLETIONS), scenario="a")
    cell = verdict.cell(get("completions.basic"), "e", [broken, trial(1, fault="cut off", scenario="b")])
    assert (cell.status, cell.reason) == (BROKEN, "why broken")


DIED = says(BROKEN, check="server-stays-healthy", why="a plain request failed twice", route=Route.NONE)


@pytest.mark.parametrize(
    ("expected", "trials"),
    [
        # A trial that broke off before its parts were reached speaks for them.
        (FLAKY, [[says(SUPPORTED)], [DIED], [says(SUPPORTED)]]),
        (FLAKY, [[says(SUPPORTED, mode=Mode.STREAM), says(SUPPORTED)], [DIED]]),
        (BROKEN, [[DIED], [DIED]]),
        (BROKEN, [[says(BROKEN)], [DIED]]),
        # A judge may speak of a part only when it goes wrong there.
        (FLAKY, [[says(SUPPORTED)], [says(SUPPORTED), says(BROKEN, mode=Mode.STREAM)]]),
        # What was seen of another route says nothing of the chat route.
        (DEGRADED, [[says(SUPPORTED)], [says(BROKEN, route=Route.COMPLETIONS)]]),
        (SUPPORTED, [[says(SUPPORTED)], [says(SUPPORTED, route=Route.COMPLETIONS)]]),
    ],
)
def test_a_trial_speaks_for_the_parts_it_did_not_show(expected, trials):
    made = [trial(number, *findings) for number, findings in enumerate(trials, 1)]
    assert verdict.cell(CHAT, "e", made).status is expected


def test_the_findings_of_a_trial_with_a_fault_do_not_count():
    cell = verdict.cell(CHAT, "e", [trial(1, says(BROKEN), fault="our exception")])
    assert (cell.status, cell.reason, cell.findings) == (ERROR, "our exception", ())


def test_a_finding_without_effect_makes_no_part():
    undecided = finding(Outcome.UNDETERMINED, SHOULD, mode=Mode.STREAM)
    cell = verdict.cell(CHAT, "e", [trial(1, says(SUPPORTED), undecided)])
    assert (cell.status, cell.parts, len(cell.findings)) == (SUPPORTED, "", 2)


def test_each_trial_shows_the_worst_of_its_own_parts():
    made = [
        trial(1, says(SUPPORTED), says(BROKEN, mode=Mode.STREAM)),
        trial(2, says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM)),
        trial(3, says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM), says(IGNORED, route=Route.COMPLETIONS)),
    ]
    cell = verdict.cell(CHAT, "e", made)
    assert (cell.status, cell.trials) == (FLAKY, (BROKEN, SUPPORTED, DEGRADED))


def test_a_trial_of_an_extended_scenario_alone_is_degraded_at_most():
    made = [trial(1, says(SUPPORTED), scenario="a")]
    made += [trial(number, says(BROKEN, route=Route.COMPLETIONS), scenario="b") for number in (1, 2)]
    assert verdict.cell(CHAT, "e", made).trials == (DEGRADED, DEGRADED)
    made[2] = trial(2, fault="cut off", scenario="b")
    assert verdict.cell(CHAT, "e", made).trials == (DEGRADED, ERROR)


def test_a_row_degraded_by_an_extended_part_tallies_its_trials_as_degraded():
    made = [trial(number, says(SUPPORTED), says(IGNORED, route=Route.COMPLETIONS)) for number in (1, 2, 3)]
    assert verdict.cell(CHAT, "e", made).tally == "3/3"


def test_a_skipped_row_keeps_its_code_and_the_reason_it_was_given():
    cell = verdict.cell(CHAT, "e", [trial(1, skip="budget", reason="400 of 400 requests used")])
    assert (cell.status, cell.skip_code, cell.reason) == (SKIPPED, "budget", "400 of 400 requests used")


def test_a_skip_code_is_for_skipped_rows_only():
    assert verdict.cell(CHAT, "e", [trial_of(SUPPORTED, 1), trial_of(SKIPPED, 2)]).skip_code is None


def test_notes_are_kept_once_each():
    made = [trial(n, says(SUPPORTED), notes=["slow first use: 21.3 s"]) for n in (1, 2)]
    assert verdict.cell(CHAT, "e", made).notes == ("slow first use: 21.3 s",)


def test_a_row_without_trials_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match=r"chat\.basic on e has no trials"):
        verdict.cell(CHAT, "e", [])


@pytest.mark.parametrize("feature", ["chat.basic", "completions.basic", "sampling.greedy", "parity.greedy"])
def test_the_order_of_trials_and_findings_changes_nothing_but_who_speaks_for_green(feature):
    draw = random.Random(20)
    for _ in range(150):
        made = []
        for scenario, number in itertools.product("ab", (1, 2, 3)):
            fate = draw.random()
            if fate < 0.15:
                made.append(trial(number, scenario=scenario, fault=f"fault {number}"))
            elif fate < 0.25:
                made.append(trial(number, scenario=scenario, skip=draw.choice(["budget", "opt-in"])))
            else:
                routes = draw.choices([Route.CHAT, Route.NONE, Route.COMPLETIONS, Route.RESPONSES], k=5)
                said = [
                    finding(
                        draw.choice([*Outcome, Outcome.HELD, Outcome.HELD]),
                        draw.choice([*Level]),
                        check=draw.choice("pqr"),
                        why=f"why {place}",
                        route=route,
                        mode=draw.choice([*Mode]),
                    )
                    for place, route in enumerate(routes)
                ]
                seen = [observed(draw.choice("xy"))] if draw.random() < 0.7 else []
                made.append(trial(number, *said[: draw.randrange(6)], scenario=scenario, observed=seen))
        expected = verdict.cell(get(feature), "e", made)
        shuffled = [
            trial(
                each.case.trial,
                *draw.sample(each.findings, len(each.findings)),
                scenario=each.case.scenario,
                fault=each.fault.reason if each.fault else "",
                skip=each.skip_code or "",
                observed=each.observed,
            )
            for each in draw.sample(made, len(made))
        ]
        found = verdict.cell(get(feature), "e", shuffled)
        speaks = found.reason if expected.status is SUPPORTED else expected.reason
        assert found == replace(expected, reason=speaks)


# --------------------------------------------------------------------------- rows that carry no status


def property_cell(*trials: Trial) -> Cell:
    return verdict.cell(get("sampling.greedy"), "e", trials)


def test_a_property_has_a_value_and_how_it_is_known():
    cell = property_cell(trial(1, observed=[observed("repeatable", "six answers were equal")]))
    assert (cell.kind, cell.value, cell.how) == (Kind.PROPERTY, "repeatable", How.OBSERVED)
    assert (cell.reason, cell.trials) == ("six answers were equal", ())


@pytest.mark.parametrize(
    ("value", "trials"),
    [
        ("a", ["a", "a", "a"]),
        ("differs between trials: a (2/3) | b (1/3)", ["b", "a", "a"]),
        ("differs between trials: a (1/2) | b (1/2)", ["b", "a"]),
    ],
)
def test_values_that_differ_between_trials_are_all_shown(value, trials):
    assert property_cell(*(trial(n, observed=[observed(v)]) for n, v in enumerate(trials, 1))).value == value


def test_several_values_of_one_property_are_joined():
    two = trial(1, observed=[observed("temperature 99 accepted"), observed("top_p 7 refused")])
    assert property_cell(two).value == "temperature 99 accepted; top_p 7 refused"
    cell = property_cell(trial(1, scenario="t", observed=[observed("b")]), trial(1, observed=[observed("a")]))
    assert cell.value == "a; b"


def test_a_joined_value_is_only_as_sure_as_its_weakest_part():
    seen = [observed("bf16"), observed("fp8", how=How.DECLARED)]
    assert property_cell(trial(1, observed=seen)).how is How.DECLARED


@pytest.mark.parametrize(
    ("status", "reason", "trials"),
    [
        (ERROR, "cut off", [trial(1, fault="cut off")]),
        (INCONCLUSIVE, "nothing was judged", [trial(1)]),
        (SKIPPED, "skipped (opt-in)", [trial(1, skip="opt-in")]),
        # A property has no rules: what was broken on the way is no value and no verdict.
        (INCONCLUSIVE, "why broken", [trial(1, says(BROKEN))]),
    ],
)
def test_a_property_without_a_value_says_why(status, reason, trials):
    cell = property_cell(*trials)
    assert (cell.status, cell.reason, cell.value, cell.how) == (status, reason, None, How.UNKNOWN)


def test_a_value_outlives_the_trials_that_failed():
    cell = property_cell(trial(1, fault="cut off"), trial(2, observed=[observed("repeatable")]))
    assert (cell.value, len(cell.faults)) == ("repeatable", 1)


def test_the_side_of_a_comparison_row_is_there_or_is_not():
    parity = get("parity.logprobs")
    assert verdict.cell(parity, "e", [trial(1)]).status is SUPPORTED
    assert verdict.cell(parity, "e", [trial(1, fault="cut off")]).status is ERROR
    assert verdict.cell(parity, "e", [trial(1, says(INCONCLUSIVE))]).status is INCONCLUSIVE
    assert verdict.cell(parity, "e", [trial(1)]).kind is Kind.COMPARISON


@pytest.mark.parametrize("status", [BROKEN, DEGRADED, SUPPORTED])
def test_what_a_comparison_row_found_is_for_the_comparison_to_say(status):
    cell = verdict.cell(get("parity.logprobs"), "e", [trial(1, says(status, why="KL 0.02"))])
    assert (cell.status, cell.reason, cell.trials, len(cell.findings)) == (SUPPORTED, "KL 0.02", (), 1)


def test_a_trial_set_aside_by_the_runner_keeps_the_reason_it_was_given():
    hung = trial(1, reason="no reply within 300 s, and no second look was taken")
    assert verdict.cell(CHAT, "e", [hung]).reason == "no reply within 300 s, and no second look was taken"
    assert property_cell(hung).reason == "no reply within 300 s, and no second look was taken"


def test_skipped_rows_carry_code_and_reason():
    cell = verdict.skipped(CHAT, "e", "needs:identity.models", "identity.models is broken")
    assert (cell.status, cell.skip_code, cell.reason) == (SKIPPED, "needs:identity.models", "identity.models is broken")
    assert verdict.no_probe(get("parity.greedy"), "e").skip_code == "no-probe"
    assert verdict.no_probe(get("parity.greedy"), "e").kind is Kind.COMPARISON


# --------------------------------------------------------------------------- rows → groups


def tally(*cells: Cell) -> dict[tuple[str, str], tuple[Status, int, int]]:
    return {
        (each.group, each.endpoint): (each.status, each.supported, each.total)
        for each in verdict.group_tallies(cells, FEATURES)
    }


def test_a_group_shows_its_core_rows_and_the_worst_of_them():
    cells = [
        row("streaming.frames", "e", SUPPORTED),
        row("streaming.usage", "e", DEGRADED),
        row("streaming.utf8", "e", SKIPPED),
        row("streaming.continuous_usage", "e", BROKEN),
    ]
    assert tally(*cells) == {("streaming", "e"): (DEGRADED, 1, 3)}


@pytest.mark.parametrize(("one", "other"), [*itertools.product(Status, Status)])
def test_the_worst_core_row_makes_the_group(one, other):
    expected = verdict.worst([one, other])
    found = tally(row("streaming.frames", "e", one), row("streaming.usage", "e", other))
    assert found == {("streaming", "e"): (expected, (one, other).count(SUPPORTED), 2)}


def test_a_group_without_core_rows_shows_its_extended_ones():
    cells = [row("embeddings.basic", "e", SUPPORTED), row("embeddings.batch", "e", UNSUPPORTED)]
    assert tally(*cells) == {("embeddings", "e"): (UNSUPPORTED, 1, 2)}


def test_properties_and_comparisons_have_no_tally():
    cells = [
        valued("sampling.greedy", "e", "repeatable"),
        row("parity.greedy", "e", BROKEN),
        row("chat.n", "e", BROKEN),
    ]
    assert tally(*cells, valued("performance.latency", "e", "12 ms")) == {}


def test_groups_come_in_display_order_with_the_endpoints_in_theirs():
    cells = [row(feature, e, SUPPORTED) for e in ("tpu", "gpu") for feature in ("tools.auto", "chat.stop")]
    assert [*tally(*cells)] == [("chat", "tpu"), ("chat", "gpu"), ("tools", "tpu"), ("tools", "gpu")]


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
