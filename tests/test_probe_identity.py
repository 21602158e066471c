"""Rows about who answers: the engine, its replicas and its precision, as judges see them."""

from __future__ import annotations

import pytest

from servecheck.model import Fingerprint, How, Known, Observed, Outcome
from servecheck.probe import Params
from servecheck.probes import identity_engine, identity_replicas, quantization_identity
from tests.handmade import answer, fingerprint, made, transcript

REPLICAS = identity_replicas.IdentityReplicasParams()


def engine(**fields: str) -> Observed:
    (found,) = identity_engine.judge(transcript(made("models", {}), known=fingerprint(**fields)), Params())
    return found


def test_the_engine_is_named_with_its_version_the_gateway_and_what_says_so():
    found = engine(engine="vllm", engine_version="0.32.0", gateway="litellm")
    assert found.value == "vllm 0.32.0 behind litellm"
    assert found.how is How.OBSERVED
    for source in ("said engine", "said engine_version", "said gateway"):
        assert source in found.why


def test_a_gateway_that_is_all_there_is_to_see_is_named_once():
    assert engine(engine="litellm", gateway="litellm").value == "litellm"


def test_an_engine_that_does_not_show_is_unknown():
    found = engine(engine_version="1")
    assert (found.value, found.how) == ("unknown", How.UNKNOWN)


def precision(how: How = How.OBSERVED, **fields: str) -> Observed:
    (found,) = quantization_identity.judge(transcript(made("models", {}), known=fingerprint(how, **fields)), Params())
    return found


def test_a_precision_comes_with_how_it_is_known():
    assert (precision(quantization="fp8", dtype="bfloat16").value, precision(quantization="fp8").how) == (
        "fp8, dtype bfloat16",
        How.OBSERVED,
    )
    assert precision(How.DECLARED, quantization="awq").how is How.DECLARED


def test_what_was_only_declared_is_not_shown_as_observed():
    known = {
        "quantization": Known(value="Q4_1", how=How.OBSERVED),
        "kv_cache_dtype": Known(value="q4_0", how=How.DECLARED),
    }
    (found,) = quantization_identity.judge(transcript(made("models", {}), known=Fingerprint(fields=known)), Params())
    assert (found.value, found.how) == ("Q4_1, KV cache q4_0 (declared)", How.OBSERVED)


def test_weights_that_do_not_show_are_unknown_whatever_else_does():
    found = precision(kv_cache_dtype="auto")
    assert (found.value, found.how) == ("not shown (KV cache auto)", How.UNKNOWN)


@pytest.mark.parametrize(
    ("name", "warned"),
    [
        *((name, True) for name in ("gptq", "gptq-int4", "Q4_1", "q4_k_m", "gguf", "bitsandbytes")),
        *((name, False) for name in ("fp8", "awq", "compressed-tensors", "none")),
    ],
)
def test_a_format_that_no_tpu_list_has_is_warned_of(name, warned):
    assert ("TPU" in precision(quantization=name).why) is warned


def replicas(*prints: str | None) -> tuple[Outcome, str]:
    said = [made(f"reply-{n}", answer(**({"system_fingerprint": p} if p else {}))) for n, p in enumerate(prints)]
    (found,) = identity_replicas.judge(transcript(*said), REPLICAS)
    return found.outcome, found.why


def test_one_fingerprint_is_one_kind_of_server():
    outcome, why = replicas(*["vllm-0.32.0-aaaaaaaa"] * 20)
    assert (outcome, why) == (Outcome.HELD, "“vllm-0.32.0-aaaaaaaa” 20 of 20 replies")


def test_two_fingerprints_are_a_mixture_with_its_shares():
    outcome, why = replicas(*["a"] * 14, *["b"] * 6)
    assert (outcome, why) == (Outcome.VIOLATED, "2 fingerprints: “a” 14 of 20, “b” 6 of 20")


def test_replies_without_a_fingerprint_among_others_come_from_somebody_else():
    outcome, why = replicas("a", "a", None, "a")
    assert (outcome, why) == (Outcome.VIOLATED, "“a” 3 of 4, and none at all 1 of 4")


def test_an_engine_that_reports_none_does_not_offer_it():
    outcome, why = replicas(None, None, None)
    assert outcome is Outcome.REFUSED
    assert why.startswith("not offered")


def test_nothing_answered_is_nothing_known():
    (found,) = identity_replicas.judge(transcript(made("reply-0", "oops", status=500)), REPLICAS)
    assert found.outcome is Outcome.UNDETERMINED
