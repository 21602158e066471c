"""What counts as garbage, as numbers, as a shape, as the same again, and as tasks kept; on hand-made transcripts."""

import math
import re
from collections.abc import Callable, Mapping

import pytest

from servecheck.model import NotApplicable, Outcome, Transcript
from servecheck.probes import quantization_recovery, quantization_sanity
from servecheck.probes.quantization_recovery import QuantizationRecoveryParams, Task, tasks
from servecheck.probes.quantization_sanity import QuantizationSanityParams, looped
from tests.made import exchange, failure, only, refusal, said, transcript, whole

WORDS, FINITE, SHAPE, CACHED = (check.id for check in quantization_sanity.PROBE.checks)
ANSWERED, KEPT = (check.id for check in quantization_recovery.PROBE.checks)
STEPS = (
    *("with-logprobs", *(f"short-{number}" for number in range(1, 7)), "long-1", "long-2", "again-long-1"),
    *("again-long-2", *(f"batch-short-{number}" for number in range(1, 7)), "batch-long-1", "batch-long-2"),
)
FINE = "The baker kneads dough and heats the oven before the street wakes."


def entries(text: str, *, logprob: float = -0.3, second: float = -2.0) -> dict[str, object]:
    return {
        "content": [
            {
                "token": word,
                "logprob": logprob,
                "top_logprobs": [{"token": word, "logprob": logprob}, {"token": "~", "logprob": second}],
            }
            for word in re.findall(r"\s*\S+", text)
        ]
    }


def sanity(
    texts: Mapping[str, str] | None = None,
    logprobs: Callable[[str], object] | None = entries,
) -> Transcript:
    """Return a transcript in which all steps say the same fine text, but for some."""
    told = {step: (texts or {}).get(step, FINE) for step in STEPS}
    return transcript(
        *(
            exchange(step, whole(text, logprobs=logprobs(text) if logprobs else None), request={})
            for step, text in told.items()
        )
    )


def judged(given: Transcript) -> dict[str, Outcome]:
    """Return what did not hold; a setting that is fine says so beside one that is not."""
    found = only(quantization_sanity.judge(given, QuantizationSanityParams()))
    return {each.check: each.outcome for each in found if each.outcome is not Outcome.HELD}


def test_words_with_numbers_beside_them_are_sane():
    found = said(quantization_sanity.judge(sanity(), QuantizationSanityParams()))
    assert found == dict.fromkeys((WORDS, FINITE, SHAPE, CACHED), Outcome.HELD)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("The answer is !!!!!!!!!!!!!!!!!!!!!!!!", "24 times '!' in a row"),
        ("well the the the the the the the the the", "“the” 8 times"),
        ("go on " + "the river " * 8, "“the river” 8 times"),
        ("a rule\n------------------------\nand dots ................... and text", ""),
        ("1000000000000000000000000", ""),
        ("no no no no, I said no no no", ""),
        ("and so on and on and on and on, as small models do at times", ""),
    ],
)
def test_circles_are_told_from_lines_and_numbers(text, sign):
    assert sign in looped(text) if sign else looped(text) == ""


@pytest.mark.parametrize(
    "steps",
    [
        [f"short-{number}" for number in range(1, 4)],
        ["long-1"],
        ["again-long-2"],
        [step for step in STEPS if step.startswith("batch")],
    ],
)
def test_garbage_in_half_of_the_answers_of_one_setting_is_broken(steps):
    assert judged(sanity(dict.fromkeys(steps, "!" * 40)))[WORDS] is Outcome.VIOLATED


def test_one_odd_answer_among_six_is_told_and_not_blamed():
    given = sanity({"short-2": "the the the the the the the the the"})
    found = [each for each in only(quantization_sanity.judge(given, QuantizationSanityParams())) if each.check == WORDS]
    assert [each.outcome for each in found].count(Outcome.UNDETERMINED) == 1
    assert Outcome.VIOLATED not in [each.outcome for each in found]


def test_half_a_character_at_the_limit_is_no_garbage():
    assert judged(sanity(dict.fromkeys(STEPS, "Un café 🦊 \ufffd\ufffd\ufffd"))) == {}


@pytest.mark.parametrize("value", [-9999.0, 2.0, None])
def test_a_greedy_token_without_a_usable_number_is_broken(value):
    def spoilt(text: str) -> object:
        made = entries(text)
        made["content"][0]["logprob"] = value  # type: ignore[index]
        return made

    assert judged(sanity(logprobs=spoilt))[FINITE] is Outcome.VIOLATED


def test_literals_that_are_no_json_are_broken_where_plain_replies_are_fine():
    plain = [each for each in sanity(logprobs=None) if each.step != "with-logprobs"]
    nan = exchange("with-logprobs", b'{"choices": [{"logprobs": {"content": [{"logprob": NaN}]}}]}', request={})
    assert judged(transcript(nan, *plain)) == {FINITE: Outcome.VIOLATED}
    assert judged(transcript(failure("with-logprobs"), *plain)) == {FINITE: Outcome.VIOLATED}


def test_refused_log_probabilities_leave_only_the_texts_to_judge():
    plain = [each for each in sanity(logprobs=None) if each.step != "with-logprobs"]
    found = said(quantization_sanity.judge(transcript(refusal("with-logprobs"), *plain), QuantizationSanityParams()))
    assert found == {WORDS: Outcome.HELD, CACHED: Outcome.HELD}


def test_flat_and_overfull_distributions_are_broken():
    even = math.log(1 / 50_000)
    assert judged(sanity(logprobs=lambda text: entries(text, logprob=even, second=even))) == {SHAPE: Outcome.VIOLATED}
    assert judged(sanity(logprobs=lambda text: entries(text, logprob=-0.1, second=-0.2))) == {SHAPE: Outcome.VIOLATED}


def test_masked_alternatives_and_certainty_are_legal():
    assert judged(sanity(logprobs=lambda text: entries(text, logprob=0.0, second=-9999.0))) == {}


def test_another_answer_from_the_cache_is_broken_at_a_clear_choice_only():
    other = {"again-long-1": FINE.replace("dough", "bread")}
    assert judged(sanity(other)) == {CACHED: Outcome.VIOLATED}
    assert judged(sanity(other, lambda text: entries(text, logprob=-0.9, second=-1.0))) == {}
    assert judged(sanity(other, None)) == {CACHED: Outcome.UNDETERMINED}


def test_a_server_that_answers_nothing_says_nothing_about_its_output():
    assert judged(transcript(*(failure(step) for step in STEPS))) == {WORDS: Outcome.UNDETERMINED}
    assert judged(transcript()) == {WORDS: Outcome.UNDETERMINED}


def test_a_failed_batch_beside_answers_is_broken():
    kept = [each for each in sanity() if not each.step.startswith("batch")]
    assert judged(transcript(*kept, failure("batch-long-1")))[WORDS] is Outcome.VIOLATED


# --------------------------------------------------------------------------- recovery


def solving(count: int, *, wrong: str = "I would rather talk about rivers.") -> Transcript:
    """Return answers that are right for the first tasks and wrong for the others."""
    made = tasks(1)
    texts = [f"It is {task.answer}." if number < count else wrong for number, task in enumerate(made)]
    return transcript(
        *(exchange(f"task-{number:02d}", whole(text), request={}) for number, text in enumerate(texts, start=1))
    )


def contrasted(left: int, right: int) -> dict[str, Outcome]:
    params = QuantizationRecoveryParams()
    return said(quantization_recovery.contrast(solving(left), solving(right), params))


def test_tasks_are_the_same_for_a_seed_and_others_for_another():
    assert tasks(1) == tasks(1)
    assert tasks(1) != tasks(2)
    assert len(tasks(1)) == 24
    assert len({task.question for task in tasks(1)}) == 24


@pytest.mark.parametrize("task", tasks(1), ids=lambda task: task.question[:24])
def test_no_task_is_solved_by_its_own_numbers(task):
    if task.kind == "arithmetic":
        assert not task.solved(task.question)
    assert task.solved(f"I think {task.answer}!")
    assert not task.solved(f"I think {task.answer}7{task.answer}")


def test_a_decoy_before_the_answer_is_no_solution():
    task = Task("finding", "Which?", "41", ("17",))
    assert task.solved("41, and not 17")
    assert not task.solved("17, or 41")


def test_the_share_is_told_by_kind_with_its_interval():
    (found,) = only(quantization_recovery.judge(solving(18), QuantizationRecoveryParams()))
    assert (found.check, found.outcome) == (ANSWERED, Outcome.HELD)
    assert found.why.startswith("18 of 24 tasks solved (55% to 88%): arithmetic 6 of 8, copying 6 of 8, finding 6 of 8")


def test_a_model_that_solves_too_few_cannot_show_a_loss():
    (found,) = quantization_recovery.judge(solving(11), QuantizationRecoveryParams())
    assert isinstance(found, NotApplicable)
    assert contrasted(11, 0) == {}


@pytest.mark.parametrize(
    ("left", "right", "outcome"),
    [
        (18, 18, Outcome.HELD),
        (18, 17, Outcome.HELD),
        (18, 24, Outcome.HELD),
        (18, 14, Outcome.UNDETERMINED),
        (18, 6, Outcome.VIOLATED),
        (24, 12, Outcome.VIOLATED),
        (12, 0, Outcome.VIOLATED),
    ],
)
def test_a_loss_is_one_where_the_whole_interval_lies_beyond_the_margin(left, right, outcome):
    assert contrasted(left, right) == {KEPT: outcome}


def test_a_task_that_is_refused_or_fails_is_the_finding():
    answered = list(solving(18))
    params = QuantizationRecoveryParams()
    assert said(quantization_recovery.judge(transcript(refusal("task-01"), *answered[1:]), params)) == {
        ANSWERED: Outcome.REFUSED
    }
    assert said(quantization_recovery.judge(transcript(failure("task-01"), *answered[1:]), params)) == {
        ANSWERED: Outcome.VIOLATED
    }
