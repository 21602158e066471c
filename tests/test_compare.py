"""What moving from left to right changes: every pair of statuses, every contrast, and what else differs."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from _pytest.mark import ParameterSet

from servecheck.compare import BEST_FIRST, Contrast, broken_on_both, compare, confounders, contrasted
from servecheck.features import FEATURES
from servecheck.model import (
    DECIDED,
    Cell,
    Comparison,
    Delta,
    Finding,
    Fingerprint,
    How,
    Known,
    Level,
    Outcome,
    Status,
)
from tests.cells import finding, row, says, valued

SUPPORTED, BROKEN, SKIPPED = Status.SUPPORTED, Status.BROKEN, Status.SKIPPED


def between(
    left: Status, right: Status, *, feature: str = "chat.stop", contrasts: Mapping[str, Contrast] | None = None
) -> Comparison:
    cells = [row(feature, "gpu", left), row(feature, "tpu", right)]
    found = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={}, contrasts=contrasts)
    assert len(found) == 1
    return found[0]


def test_the_order_of_worth_holds_each_decided_status_once():
    assert [*BEST_FIRST] == DELTAS.split()[:6]
    assert set(BEST_FIRST) == DECIDED


# Rows are left, columns right: = same, > tpu is behind, < gpu is behind, ? unclear, - no comparison.
DELTAS = """
             supported degraded flaky unsupported ignored broken inconclusive error skipped
supported    =         >        >     >           >       >      ?            ?     ?
degraded     <         =        >     >           >       >      ?            ?     ?
flaky        <         <        =     >           >       >      ?            ?     ?
unsupported  <         <        <     =           >       >      ?            ?     ?
ignored      <         <        <     <           =       >      ?            ?     ?
broken       <         <        <     <           <       =      ?            ?     ?
inconclusive ?         ?        ?     ?           ?       ?      ?            ?     ?
error        ?         ?        ?     ?           ?       ?      ?            ?     ?
skipped      ?         ?        ?     ?           ?       ?      ?            ?     -
"""


@pytest.mark.parametrize(
    ("left", "right", "delta"),
    [("structured_outputs", "grammar", Delta.DRIFT), ("regex", "regex", Delta.SAME), ("regex", None, Delta.SAME)],
)
def test_a_feature_that_works_by_another_field_has_drifted(left: str, right: str | None, delta: Delta) -> None:
    cells = [
        replace(
            row("structured.choice", name, SUPPORTED),
            findings=(replace(finding(), measured={} if way is None else {"dialect": way}, evidence=(f"x-{name}",)),),
        )
        for name, way in (("gpu", left), ("tpu", right))
    ]
    (found,) = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={})
    assert found.delta is delta
    if delta is Delta.DRIFT:
        assert found.why == (
            "supported on gpu and tpu, but requests must be rewritten: structured_outputs on gpu; grammar on tpu"
        )
        assert found.evidence == ("x-tpu",)


def pairs() -> Iterator[ParameterSet]:
    head, *lines = DELTAS.strip().splitlines()
    for line in lines:
        left, *marks = line.split()
        for right, mark in zip(head.split(), marks, strict=True):
            yield pytest.param(mark, Status(left), Status(right), id=f"{left}-{right}")


@pytest.mark.parametrize(("mark", "left", "right"), [*pairs()])
def test_every_pair_of_statuses_has_its_delta(mark, left, right):
    if mark == "-":
        cells = [row("chat.stop", "gpu", left), row("chat.stop", "tpu", right)]
        assert compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={}) == ()
        return
    found = between(left, right)
    expected = {
        "=": (Delta.SAME, None),
        ">": (Delta.BEHIND, "tpu"),
        "<": (Delta.BEHIND, "gpu"),
        "?": (Delta.UNCLEAR, None),
    }
    assert (found.delta, found.side) == expected[mark]
    for endpoint, status in (("gpu", left), ("tpu", right)):
        assert status.value in found.why
        assert endpoint in found.why


def test_the_table_is_complete():
    assert len([*pairs()]) == len(Status) ** 2


@pytest.mark.parametrize(
    ("status", "delta", "side"),
    [
        (SUPPORTED, Delta.BEHIND, "tpu"),
        (Status.DEGRADED, Delta.BEHIND, "tpu"),
        (Status.FLAKY, Delta.BEHIND, "tpu"),
        (Status.UNSUPPORTED, Delta.SAME, None),
        (Status.IGNORED, Delta.BEHIND, "gpu"),
        (BROKEN, Delta.BEHIND, "gpu"),
        (Status.INCONCLUSIVE, Delta.UNCLEAR, None),
        (Status.ERROR, Delta.UNCLEAR, None),
    ],
)
def test_what_an_endpoint_has_nothing_of_counts_as_refused_beside_one_that_was_judged(status, delta, side):
    without = replace(row("embeddings.basic", "tpu", SKIPPED), reason="no such route", lacks=("t1",))
    cells = [row("embeddings.basic", "gpu", status), without]
    (found,) = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={})
    (turned,) = compare(cells, FEATURES, left="tpu", right="gpu", fingerprints={})
    assert (found.delta, found.side) == (turned.delta, turned.side) == (delta, side)
    if side == "tpu":
        assert found.why == f"{status} on gpu, not offered on tpu: no such route"
        assert found.evidence == ("t1",)


def test_what_no_endpoint_has_is_not_compared_and_what_we_left_out_is_unclear():
    without = [replace(row("embeddings.basic", name, SKIPPED), lacks=(name,)) for name in ("gpu", "tpu")]
    assert compare(without, FEATURES, left="gpu", right="tpu", fingerprints={}) == ()
    assert between(SUPPORTED, SKIPPED, feature="embeddings.basic").delta is Delta.UNCLEAR


def test_why_gives_the_reason_of_the_worse_side():
    assert between(SUPPORTED, BROKEN).why == "supported on gpu, broken on tpu: why broken"
    assert between(BROKEN, SUPPORTED).why == "broken on gpu, supported on tpu: why broken"
    assert between(Status.ERROR, BROKEN).why == "error on gpu (why error), broken on tpu"
    assert between(SUPPORTED, SUPPORTED).why == "supported on gpu and tpu"


def test_a_row_missing_on_one_side_is_unclear():
    found = compare([row("chat.stop", "gpu", BROKEN)], FEATURES, left="gpu", right="tpu", fingerprints={})
    assert [(each.delta, each.why) for each in found] == [(Delta.UNCLEAR, "broken on gpu, not part of the run on tpu")]


def test_evidence_is_that_of_what_did_not_hold_on_the_worse_side():
    def cell(endpoint: str, status: Status, *findings: Finding) -> Cell:
        return Cell(feature="chat.stop", endpoint=endpoint, status=status, reason="", findings=findings)

    def seen(outcome: Outcome, *evidence: str) -> Finding:
        return Finding(check="c", outcome=outcome, why="", evidence=evidence)

    worse = cell(
        "tpu", BROKEN, seen(Outcome.HELD, "t1"), seen(Outcome.VIOLATED, "t2", "t3"), seen(Outcome.REFUSED, "t2")
    )
    cells = [cell("gpu", SUPPORTED, seen(Outcome.HELD, "g1")), worse]
    (found,) = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={})
    assert found.evidence == ("t2", "t3")


def test_rows_come_in_display_order():
    cells = [row(feature, e, SUPPORTED) for feature in ("tools.auto", "chat.stop") for e in ("tpu", "gpu")]
    found = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={})
    assert [each.feature for each in found] == ["chat.stop", "tools.auto"]


# --------------------------------------------------------------------------- measurements


@pytest.mark.parametrize("delta", [Delta.SAME, Delta.DRIFT, Delta.UNCLEAR])
def test_a_comparison_row_is_what_was_measured(delta):
    contrast = Contrast(delta=delta, why="p99 0.4", measured={"p99_nat": 0.4}, evidence=("x1",))
    found = between(SUPPORTED, SUPPORTED, feature="parity.logprobs", contrasts={"parity.logprobs": contrast})
    assert (found.delta, found.side, found.why) == (delta, None, "p99 0.4")
    assert (found.measured, found.evidence) == ({"p99_nat": 0.4}, ("x1",))


def test_a_comparison_row_reads_the_findings_of_the_right_side_where_no_contrast_is_given():
    left, right = row("parity.logprobs", "gpu", SUPPORTED), row("parity.logprobs", "tpu", SUPPORTED)
    cells = [replace(left, findings=(says(SUPPORTED),)), replace(right, findings=(says(BROKEN, why="KL 0.02"),))]
    (found,) = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={})
    assert (found.delta, found.why) == (Delta.DRIFT, "KL 0.02")
    given = {"parity.logprobs": Contrast(delta=Delta.SAME, why="")}
    (found,) = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints={}, contrasts=given)
    assert found.delta is Delta.SAME


def test_a_comparison_row_that_nobody_measured_is_unclear():
    assert between(SUPPORTED, SUPPORTED, feature="parity.logprobs").delta is Delta.UNCLEAR


def test_a_comparison_row_with_an_undecided_side_is_unclear_whatever_was_measured():
    contrasts = {"parity.logprobs": Contrast(delta=Delta.SAME, why="")}
    found = between(SUPPORTED, Status.ERROR, feature="parity.logprobs", contrasts=contrasts)
    assert (found.delta, found.why) == (Delta.UNCLEAR, "measured on gpu, error on tpu (why error)")


@pytest.mark.parametrize(
    ("expected", "left", "right", "measured"),
    [
        (Delta.DRIFT, SUPPORTED, SUPPORTED, Delta.DRIFT),
        (Delta.UNCLEAR, SUPPORTED, SUPPORTED, Delta.UNCLEAR),
        (Delta.SAME, SUPPORTED, SUPPORTED, Delta.SAME),
        (Delta.DRIFT, Status.DEGRADED, Status.DEGRADED, Delta.DRIFT),
        # How two broken answers differ is no news.
        (Delta.SAME, BROKEN, BROKEN, Delta.DRIFT),
        (Delta.BEHIND, SUPPORTED, BROKEN, Delta.SAME),
        (Delta.UNCLEAR, SUPPORTED, Status.ERROR, Delta.DRIFT),
    ],
)
def test_measurements_count_between_equal_statuses(expected, left, right, measured):
    contrasts = {"chat.stop": Contrast(delta=measured, why="by 3 tokens")}
    assert between(left, right, contrasts=contrasts).delta is expected


def test_a_measurement_is_never_behind():
    with pytest.raises(ValueError, match="only a status is behind"):
        Contrast(delta=Delta.BEHIND, why="")


HELD, VIOLATED, UNDETERMINED = Outcome.HELD, Outcome.VIOLATED, Outcome.UNDETERMINED


@pytest.mark.parametrize(
    ("expected", "findings"),
    [
        (Delta.SAME, [finding(HELD)]),
        (Delta.DRIFT, [finding(VIOLATED)]),
        (Delta.DRIFT, [finding(VIOLATED, Level.SHOULD)]),
        (Delta.UNCLEAR, [finding(UNDETERMINED)]),
        (Delta.UNCLEAR, [finding(UNDETERMINED, Level.SHOULD)]),
        (Delta.UNCLEAR, [finding(Outcome.REFUSED)]),
        (Delta.UNCLEAR, [finding(Outcome.NO_EFFECT)]),
        (Delta.UNCLEAR, []),
        (Delta.SAME, [finding(HELD), finding(UNDETERMINED, Level.SHOULD, check="b")]),
        (Delta.UNCLEAR, [finding(HELD), finding(UNDETERMINED, check="b")]),
        (Delta.DRIFT, [finding(HELD), finding(UNDETERMINED, check="b"), finding(VIOLATED, check="c")]),
        # The same check in several trials: what disagrees straddles the margin, what could not tell is set aside.
        (Delta.UNCLEAR, [finding(HELD), finding(VIOLATED)]),
        (Delta.DRIFT, [finding(VIOLATED), finding(UNDETERMINED)]),
        (Delta.SAME, [finding(HELD), finding(UNDETERMINED)]),
    ],
)
def test_findings_of_both_sides_make_a_contrast_in_any_order(expected, findings):
    for given in itertools.permutations(findings):
        assert contrasted(given).delta is expected


def test_a_contrast_keeps_the_sentence_figures_and_evidence_of_what_decided_it():
    drifted = Finding(check="b", outcome=VIOLATED, why="KL 0.02", measured={"kl_nat": 0.02}, evidence=("x2", "x1"))
    found = contrasted([says(SUPPORTED), drifted])
    assert (found.why, found.measured, found.evidence) == ("KL 0.02", {"kl_nat": 0.02}, ("x2", "x1"))


# --------------------------------------------------------------------------- what else differs


def fingerprint(**fields: str | None) -> Fingerprint:
    known = {
        name: Known(value=value, how=How.OBSERVED if value is not None else How.UNKNOWN)
        for name, value in fields.items()
    }
    return Fingerprint(fields=known)


def test_confounders_are_the_fields_and_properties_that_differ():
    left = fingerprint(engine="vllm", device="gpu", quantization=None, model="m")
    right = fingerprint(engine="sglang", device=None, quantization=None, model="m", parallelism="tp8")
    cells = [
        valued("sampling.greedy", "gpu", "repeatable"),
        valued("sampling.greedy", "tpu", "near-tie noise"),
        valued("errors.family", "gpu", "openai"),
        valued("errors.family", "tpu", "openai"),
        valued("quantization.identity", "tpu", "fp8"),
        row("performance.latency", "gpu", Status.ERROR),
        row("performance.latency", "tpu", Status.SKIPPED),
        row("chat.stop", "gpu", SUPPORTED),
        valued("chat.stop", "tpu", "a judged row has no value that counts"),
        valued("sampling.greedy", "other", "not repeatable"),
    ]
    assert confounders(left, right, cells, left="gpu", right="tpu") == (
        "engine: vllm | sglang",
        "sampling.greedy: repeatable | near-tie noise",
        "known on one side only: device (on gpu); parallelism, quantization.identity (on tpu)",
    )


def test_a_property_whose_value_is_that_it_is_unknown_is_known_on_the_other_side_only():
    said = replace(valued("quantization.identity", "gpu", "unknown"), how=How.UNKNOWN)
    cells = [said, valued("quantization.identity", "tpu", "fp8")]

    assert confounders(fingerprint(), fingerprint(), cells, left="gpu", right="tpu") == (
        "known on one side only: quantization.identity (on tpu)",
    )


def test_what_nobody_knows_and_what_is_equal_is_no_confounder():
    left, right = fingerprint(engine="vllm", device=None), fingerprint(engine="vllm", device=None)

    assert confounders(left, right, [], left="gpu", right="tpu") == ()


def test_a_property_is_a_confounder_of_every_row_and_no_row_of_its_own():
    cells = [valued("errors.family", "tpu", "fastapi"), valued("errors.family", "gpu", "openai")]
    cells += [valued("identity.engine", e, e) for e in ("gpu", "tpu")]
    cells += [row(feature, e, SUPPORTED) for feature in ("chat.stop", "tools.auto") for e in ("gpu", "tpu")]
    prints = {"gpu": fingerprint(engine="vllm"), "tpu": fingerprint(engine="sglang")}
    found = compare(cells, FEATURES, left="gpu", right="tpu", fingerprints=prints)
    assert [each.feature for each in found] == ["chat.stop", "tools.auto"]
    expected = ("engine: vllm | sglang", "identity.engine: gpu | tpu", "errors.family: openai | fastapi")
    assert {each.confounders for each in found} == {expected}


def test_only_judged_rows_broken_on_both_are_listed_as_such():
    cells = [
        *[row("tools.auto", e, BROKEN) for e in ("gpu", "tpu")],
        *[row("chat.n", e, BROKEN) for e in ("tpu", "gpu")],
        *[row("chat.stop", e, Status.IGNORED) for e in ("gpu", "tpu")],
        *[row("parity.greedy", e, BROKEN) for e in ("gpu", "tpu")],
        row("chat.basic", "gpu", BROKEN),
        row("chat.basic", "tpu", SUPPORTED),
        row("tools.none", "gpu", BROKEN),
        row("tools.none", "other", BROKEN),
    ]
    assert broken_on_both(cells, "gpu", "tpu") == ("tools.auto", "chat.n")
