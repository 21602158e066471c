"""From findings to the status of a trial, a part, a row and a group: every table of the contract, cell by cell."""

import itertools
import random
from dataclasses import replace

import pytest

from servecheck import rollup
from servecheck.features import FEATURES, get
from servecheck.model import (
    Cell,
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
)
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
    assert rollup.trial_status([finding(outcome, MUST, why="because")]) == (must, "because")
    beside = finding(Outcome.HELD, SHOULD, check="another", why="held")
    why = "held" if outcome is Outcome.UNDETERMINED else "because"
    assert rollup.trial_status([finding(outcome, SHOULD, check="z", why="because"), beside]) == (should, why)


@pytest.mark.parametrize("worse", range(6))
def test_a_trial_takes_the_worst_of_its_checks_and_its_reason(worse):
    order = [BROKEN, IGNORED, UNSUPPORTED, DEGRADED, INCONCLUSIVE, SUPPORTED]
    findings = [says(status, check=f"c{place}") for place, status in enumerate(order[worse:])]
    for given in (findings, findings[::-1]):
        assert rollup.trial_status(given) == (order[worse], f"why {order[worse]}")


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
    assert rollup.trial_status([], **kwargs) == (status, reason)


def test_a_fault_is_error_whatever_the_findings_are():
    fault = Fault(kind=FaultKind.DENIED, reason="401 for the canary too")
    assert rollup.trial_status([says(BROKEN)], fault=fault) == (ERROR, "401 for the canary too")


def test_findings_without_effect_alone_are_no_evidence_of_support():
    undecided = finding(Outcome.UNDETERMINED, SHOULD, why="two tokens are too few")
    assert rollup.trial_status([undecided]) == (INCONCLUSIVE, "two tokens are too few")


def test_a_must_speaks_before_a_should_of_the_same_status():
    findings = [finding(level=SHOULD, check="a", why="nice"), finding(level=MUST, check="b", why="needed")]
    assert rollup.trial_status(findings) == (SUPPORTED, "needed")


def test_the_first_must_of_the_probe_speaks_for_all_that_held():
    findings = [finding(level=SHOULD, check="a", why="nice")]
    findings += [finding(level=MUST, check=check, why=f"{check} held") for check in "zbc"]
    assert rollup.trial_status(findings) == (SUPPORTED, "z held")


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
        assert rollup.part_status([(status, f"why {status}") for status in given])[0] is Status(expected)
        made = [trial_of(status, number) for number, status in enumerate(given, 1)]
        assert rollup.cell(CHAT, "e", made).status is Status(expected)


def test_flaky_says_how_many_did_what_and_why_the_worst_did():
    made = [trial_of(SUPPORTED, 1), trial_of(BROKEN, 2), trial_of(SUPPORTED, 3)]
    cell = rollup.cell(CHAT, "e", made)
    assert cell.reason == "3 trials disagree: 2 supported, 1 broken (why broken)"
    assert (cell.status.mark, cell.tally) == ("🎲", "2/3")


def test_invalid_trials_are_shown_but_not_tallied():
    cell = rollup.cell(CHAT, "e", [trial_of(SUPPORTED, 1), trial_of(ERROR, 2), trial_of(SUPPORTED, 3)])
    assert (cell.trials, cell.tally) == ((SUPPORTED, ERROR, SUPPORTED), "2/2")
    assert [fault.reason for fault in cell.faults] == ["why error"]


# --------------------------------------------------------------------------- parts → row


def part(status: Status, route: Route = Route.CHAT, mode: Mode = Mode.NON_STREAM, scenario: str = "s") -> rollup.Part:
    return rollup.Part(scenario=scenario, route=route, mode=mode, status=status, reason=f"why {status}")


def test_the_order_of_badness_names_each_status_once_and_ends_green():
    assert sorted(rollup.WORST_FIRST) == sorted(Status)
    assert rollup.WORST_FIRST[-1] is SUPPORTED


@pytest.mark.parametrize(("one", "other"), [*itertools.product(Status, Status)])
def test_of_two_core_parts_the_worse_makes_the_row(one, other):
    named = [BROKEN, FLAKY, IGNORED, UNSUPPORTED, DEGRADED, ERROR, INCONCLUSIVE, SKIPPED, SUPPORTED]
    expected = min(one, other, key=named.index)
    for parts in ([part(one), part(other, mode=Mode.STREAM)], [part(other, scenario="t"), part(one)]):
        assert rollup.roll_up(parts) == (expected, f"why {expected}")


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
    assert rollup.roll_up(parts)[0] is expected
    assert rollup.roll_up(parts[::-1]) == rollup.roll_up(parts)


def test_a_shortfall_of_an_extended_part_is_named_in_the_reason():
    streamed = part(BROKEN, Route.COMPLETIONS, Mode.STREAM)
    assert rollup.roll_up([part(SUPPORTED), streamed])[1] == "completions, streamed: broken: why broken"
    assert rollup.roll_up([part(ERROR), streamed])[1] == "why error; also completions, streamed: broken"


def test_what_belongs_to_no_route_is_core_beside_the_chat_route():
    assert rollup.roll_up([part(SUPPORTED), part(BROKEN, Route.NONE, Mode.NONE)])[0] is BROKEN


@pytest.mark.parametrize("status", [*Status])
def test_a_row_without_the_chat_route_is_judged_by_all_its_parts(status):
    assert rollup.roll_up([part(status, Route.COMPLETIONS)])[0] is status
    beside = [part(SUPPORTED, Route.NONE, Mode.NONE), part(SUPPORTED, Route.RESPONSES)]
    assert rollup.roll_up([*beside, part(status, Route.COMPLETIONS)])[0] is status


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
    assert rollup.cell(CHAT, "e", [trial(1, *findings)]).parts == expected


def test_a_fault_counts_for_every_part_its_scenario_showed():
    both = [says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM)]
    cell = rollup.cell(CHAT, "e", [trial(1, *both), trial(2, fault="cut off"), trial(3, *both)])
    assert (cell.status, cell.trials, cell.parts) == (SUPPORTED, (SUPPORTED, ERROR, SUPPORTED), "2 of 2 parts")


def test_a_scenario_that_only_failed_is_one_core_part_of_its_own():
    made = [trial(1, says(SUPPORTED), scenario="a"), trial(1, fault="cut off", scenario="b")]
    cell = rollup.cell(CHAT, "e", made)
    assert (cell.status, cell.reason, cell.parts) == (ERROR, "cut off", "1 of 2 parts")


def test_a_scenario_that_only_failed_leaves_a_row_without_chat_to_its_parts():
    broken = trial(1, says(BROKEN, route=Route.COMPLETIONS), scenario="a")
    cell = rollup.cell(get("completions.basic"), "e", [broken, trial(1, fault="cut off", scenario="b")])
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
    assert rollup.cell(CHAT, "e", made).status is expected


def test_the_findings_of_a_trial_with_a_fault_do_not_count():
    cell = rollup.cell(CHAT, "e", [trial(1, says(BROKEN), fault="our exception")])
    assert (cell.status, cell.reason, cell.findings) == (ERROR, "our exception", ())


def test_a_finding_without_effect_makes_no_part():
    undecided = finding(Outcome.UNDETERMINED, SHOULD, mode=Mode.STREAM)
    cell = rollup.cell(CHAT, "e", [trial(1, says(SUPPORTED), undecided)])
    assert (cell.status, cell.parts, len(cell.findings)) == (SUPPORTED, "", 2)


def test_each_trial_shows_the_worst_of_its_own_parts():
    made = [
        trial(1, says(SUPPORTED), says(BROKEN, mode=Mode.STREAM)),
        trial(2, says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM)),
        trial(3, says(SUPPORTED), says(SUPPORTED, mode=Mode.STREAM), says(IGNORED, route=Route.COMPLETIONS)),
    ]
    cell = rollup.cell(CHAT, "e", made)
    assert (cell.status, cell.trials) == (FLAKY, (BROKEN, SUPPORTED, DEGRADED))


def test_a_trial_of_an_extended_scenario_alone_is_degraded_at_most():
    made = [trial(1, says(SUPPORTED), scenario="a")]
    made += [trial(number, says(BROKEN, route=Route.COMPLETIONS), scenario="b") for number in (1, 2)]
    assert rollup.cell(CHAT, "e", made).trials == (DEGRADED, DEGRADED)
    made[2] = trial(2, fault="cut off", scenario="b")
    assert rollup.cell(CHAT, "e", made).trials == (DEGRADED, ERROR)


def test_a_row_degraded_by_an_extended_part_tallies_its_trials_as_degraded():
    made = [trial(number, says(SUPPORTED), says(IGNORED, route=Route.COMPLETIONS)) for number in (1, 2, 3)]
    assert rollup.cell(CHAT, "e", made).tally == "3/3"


def test_a_skipped_row_keeps_its_code_and_the_reason_it_was_given():
    cell = rollup.cell(CHAT, "e", [trial(1, skip="budget", reason="400 of 400 requests used")])
    assert (cell.status, cell.skip_code, cell.reason) == (SKIPPED, "budget", "400 of 400 requests used")


def test_a_skip_code_is_for_skipped_rows_only():
    assert rollup.cell(CHAT, "e", [trial_of(SUPPORTED, 1), trial_of(SKIPPED, 2)]).skip_code is None


def test_notes_are_kept_once_each():
    made = [trial(n, says(SUPPORTED), notes=["slow first use: 21.3 s"]) for n in (1, 2)]
    assert rollup.cell(CHAT, "e", made).notes == ("slow first use: 21.3 s",)


def test_a_row_without_trials_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match=r"chat\.basic on e has no trials"):
        rollup.cell(CHAT, "e", [])


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
        expected = rollup.cell(get(feature), "e", made)
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
        found = rollup.cell(get(feature), "e", shuffled)
        speaks = found.reason if expected.status is SUPPORTED else expected.reason
        assert found == replace(expected, reason=speaks)


# --------------------------------------------------------------------------- rows that carry no status


def property_cell(*trials: Trial) -> Cell:
    return rollup.cell(get("sampling.greedy"), "e", trials)


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
        # A property has no rules: what was broken on the way is no value and no rollup.
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
    assert rollup.cell(parity, "e", [trial(1)]).status is SUPPORTED
    assert rollup.cell(parity, "e", [trial(1, fault="cut off")]).status is ERROR
    assert rollup.cell(parity, "e", [trial(1, says(INCONCLUSIVE))]).status is INCONCLUSIVE
    assert rollup.cell(parity, "e", [trial(1)]).kind is Kind.COMPARISON


@pytest.mark.parametrize("status", [BROKEN, DEGRADED, SUPPORTED])
def test_what_a_comparison_row_found_is_for_the_comparison_to_say(status):
    cell = rollup.cell(get("parity.logprobs"), "e", [trial(1, says(status, why="KL 0.02"))])
    assert (cell.status, cell.reason, cell.trials, len(cell.findings)) == (SUPPORTED, "KL 0.02", (), 1)


def test_a_trial_set_aside_by_the_runner_keeps_the_reason_it_was_given():
    hung = trial(1, reason="no reply within 300 s, and no second look was taken")
    assert rollup.cell(CHAT, "e", [hung]).reason == "no reply within 300 s, and no second look was taken"
    assert property_cell(hung).reason == "no reply within 300 s, and no second look was taken"


def test_skipped_rows_carry_code_and_reason():
    cell = rollup.skipped(CHAT, "e", "needs:identity.models", "identity.models is broken")
    assert (cell.status, cell.skip_code, cell.reason) == (SKIPPED, "needs:identity.models", "identity.models is broken")
    assert rollup.no_probe(get("parity.greedy"), "e").skip_code == "no-probe"
    assert rollup.no_probe(get("parity.greedy"), "e").kind is Kind.COMPARISON


# --------------------------------------------------------------------------- rows → groups


def tally(*cells: Cell) -> dict[tuple[str, str], tuple[Status, int, int]]:
    return {
        (each.group, each.endpoint): (each.status, each.supported, each.total)
        for each in rollup.group_tallies(cells, FEATURES)
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
    expected = rollup.worst([one, other])
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
