"""LoRA adapters: how each engine lists them, what counts as an effect, and what is noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from servecheck.identify import served_models
from servecheck.model import Exchange, Json, NotApplicable, Outcome
from servecheck.probes._adapters import adapters, base_fields, unknown_fields
from servecheck.probes.lora_effect import PROBE as EFFECT
from servecheck.probes.lora_listed import PROBE as LISTED
from tests.replies import chat, judged, refusal, reply, said, transcript, why

H, V, N, R, U = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.UNDETERMINED
BASE: dict[str, Json] = {"id": "m", "object": "model", "parent": None, "max_model_len": 2048}
TUNED: dict[str, Json] = {"id": "sql", "object": "model", "parent": "m", "max_model_len": 2048}


def models(*entries: Json) -> Exchange:
    return reply("models", {"object": "list", "data": list(entries)}, path="/v1/models")


def listed(*exchanges: Exchange, entries: Sequence[Json] = (BASE, TUNED)) -> list[Any]:
    right = (chat("base", "Paris"), chat("adapter-0", "Paris", model="sql"), refusal("unknown", "no such model", 404))
    given = {exchange.step: exchange for exchange in (models(*entries), *right, *exchanges)}
    return judged(LISTED, transcript(*given.values()))


def test_a_listed_adapter_that_answers_holds_every_rule():
    found = listed()

    assert {one.outcome for one in found} == {H}
    assert {one.check for one in found} == {check.id for check in LISTED.checks}


@pytest.mark.parametrize(("model", "outcomes"), [("sql", [H]), ("m", [V]), ("/weights/sql", []), (None, [])])
def test_an_adapter_does_not_answer_in_its_parents_name(model, outcomes):
    found = listed(chat("adapter-0", "Paris", model=model))

    assert said(found, "adapter-answers-under-its-own-name") == outcomes


@pytest.mark.parametrize("entries", [(BASE,), ({"id": "m"},), ({"id": "m", "parent": "m"},), ()])
def test_no_parent_means_no_adapters(entries):
    assert [type(one) for one in listed(entries=entries)] == [NotApplicable]


def test_a_listed_model_that_is_refused_is_broken_without_any_adapter():
    found = listed(refusal("base", "adapter 120b is unknown"), entries=(BASE,))

    assert said(found, "every-listed-adapter-answers") == [V]
    assert "adapter 120b is unknown" in why(found, "every-listed-adapter-answers")


def test_a_refused_adapter_beside_a_refused_model_says_nothing():
    assert said(listed(refusal("base"), refusal("adapter-0")), "every-listed-adapter-answers") == [U]


@pytest.mark.parametrize(("length", "outcomes"), [(2048, [H]), (None, [V]), (512, [V]), ("absent", [])])
def test_an_adapter_is_as_long_as_its_parent_or_silent(length, outcomes):
    entry = {name: value for name, value in {**TUNED, "max_model_len": length}.items() if value != "absent"}

    assert said(listed(entries=(BASE, entry)), "adapter-length-is-given-as-its-parent-s") == outcomes


def test_an_unknown_adapter_that_answers_is_a_shortcoming():
    assert said(listed(chat("unknown", "Paris")), "unknown-adapter-is-refused") == [V]


def test_llama_cpp_counts_its_adapters_and_switches_them_by_scale():
    counted = reply("lora-adapters", [{"id": 0, "path": "/lora/sql.gguf", "scale": 0.0}], path="/lora-adapters")
    found = transcript(models(BASE), counted)
    (adapter,) = adapters(found)

    assert (adapter.name, dict(adapter.fields)) == ("sql.gguf", {"lora": [{"id": 0, "scale": 1.0}]})
    assert base_fields(found) == {"lora": [{"id": 0, "scale": 0.0}]}
    assert "lora" in unknown_fields(adapter, "x")


def test_an_adapter_is_no_model_to_choose_from():
    assert served_models(models(BASE, TUNED)) == ("m",)
    assert served_models(models({"id": "a", "parent": "/weights"}, {"id": "b", "parent": "b"})) == ("a", "b")


# --------------------------------------------------------------------------- effect


def said_at(step: str, logprob: float | None) -> Exchange:
    return chat(step, "Paris", logprobs=() if logprob is None else (logprob,))


def effect(
    base: float | None = -0.5, again: float | None = -0.5, adapter: float | None = -1.5, **others: float | None
) -> list[Any]:
    steps = {"base-0": base, "again-0": again, "adapter-0-0": adapter}
    steps |= {"beside-base": base, "beside-0": adapter, "after": base}
    steps |= {"long-base": base, "long-cached": adapter, "long-past": adapter}
    steps |= {step.replace("_", "-"): value for step, value in others.items()}
    exchanges = [said_at(step, logprob) for step, logprob in steps.items()]
    return judged(EFFECT, transcript(models(BASE, TUNED), *exchanges), prompts=("Hello",))


def test_an_adapter_that_moves_the_first_token_holds_every_rule():
    found = effect()

    assert {one.outcome for one in found} == {H}
    assert {one.check for one in found} == {check.id for check in EFFECT.checks}


@pytest.mark.parametrize(
    ("again", "adapter", "outcome"),
    [
        (-0.5, -0.5, N),
        (-0.5, -0.51, N),
        (-0.5, -0.6, H),
        (-0.6, -0.7, U),
        (-0.6, -0.95, H),
        (None, None, U),
    ],
)
def test_an_effect_is_more_than_the_model_s_own_noise(again, adapter, outcome):
    base = None if adapter is None else -0.5

    assert said(effect(base=base, again=again, adapter=adapter), "adapter-changes-the-answer") == [outcome]


@pytest.mark.parametrize(("after", "outcome"), [(-0.5, H), (-0.7, H), (-1.5, V), (None, U)])
def test_the_model_stays_itself(after, outcome):
    assert said(effect(after=after), "base-model-stays-itself") == [outcome]


@pytest.mark.parametrize(("base", "adapter", "outcome"), [(-0.5, -1.5, H), (-1.5, -1.5, V), (-0.5, -0.5, V)])
def test_side_by_side_each_is_what_it_is_alone(base, adapter, outcome):
    found = effect(beside_base=base, beside_0=adapter)

    assert said(found, "adapter-and-base-keep-apart-in-a-batch") == [outcome]


@pytest.mark.parametrize(("cached", "past", "outcome"), [(-1.5, -1.5, H), (-0.5, -1.5, V), (-0.5, -0.5, U)])
def test_the_cache_is_judged_where_model_and_adapter_differ(cached, past, outcome):
    assert said(effect(long_cached=cached, long_past=past), "adapter-reads-no-other-s-cache") == [outcome]


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"data": 1}', b'{"data": [1, null, {"id": 5, "parent": 6}]}'])
@pytest.mark.parametrize("probe", [LISTED, EFFECT], ids=lambda probe: probe.id)
def test_judges_say_something_of_any_list(probe, body):
    found = judged(probe, transcript(reply("models", body, path="/v1/models")))

    assert found
    assert all(isinstance(one, NotApplicable) or one.outcome is not H for one in found)
