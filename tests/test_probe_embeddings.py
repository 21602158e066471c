"""Embeddings: what a vector is, which vector belongs to which text, and what base64 must hold."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from servecheck.model import Exchange, Json, NotApplicable, Outcome
from servecheck.probe import Params, Probe
from servecheck.probes._vectors import Item, cosine, fault
from servecheck.probes.embeddings_base64 import PROBE as BASE64
from servecheck.probes.embeddings_basic import PROBE as BASIC
from servecheck.probes.embeddings_batch import PROBE as BATCH
from servecheck.probes.embeddings_dimensions import PROBE as DIMENSIONS
from tests.replies import judged, refusal, reply, said, transcript, why

H, V, N, R, U = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.UNDETERMINED
PATH = "/v1/embeddings"
ONE, TWO, THREE = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.6, 0.8]


def embedded(step: str, *vectors: Any, prompt: int | None = 4, indices: Sequence[int] | None = None) -> Exchange:
    data: list[Json] = [
        {"object": "embedding", "index": place if indices is None else indices[place], "embedding": vector}
        for place, vector in enumerate(vectors)
    ]
    usage: Json = {"prompt_tokens": prompt, "total_tokens": prompt}
    return reply(step, {"object": "list", "model": "m", "data": data, "usage": usage}, path=PATH)


def packed(vector: Sequence[float], form: str = "<f") -> str:
    return base64.b64encode(struct.pack(f"{form[0]}{len(vector)}{form[1]}", *vector)).decode()


# --------------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    ("vector", "sign"),
    [([], "no numbers"), ([0.0, 0.0], "all 2 numbers are 0"), ([1.0, math.inf], "1 of 2"), ([1.0, -2.0], "")],
)
def test_a_vector_has_a_direction(vector, sign):
    assert sign in fault(vector)
    assert bool(sign) == bool(fault(vector))


@pytest.mark.parametrize(
    "value",
    [[1.0, None], [True], "not base64!", "AAA=", "", None, {"a": 1}, [10**400], [[1.0]]],
)
def test_what_is_no_list_of_numbers_is_no_vector(value):
    assert not Item(index=0, value=value).vector


def test_base64_is_32_bits_with_the_least_byte_first():
    assert Item(index=0, value="zczMPc3MTD4=").vector == pytest.approx((0.1, 0.2))


def test_vectors_of_different_sizes_have_nothing_in_common():
    assert cosine([1.0, 0.0], [1.0, 0.0, 0.0]) == 0.0


# --------------------------------------------------------------------------- one text


def basic(*exchanges: Exchange, **fingerprint: str) -> list[Any]:
    first = embedded("one", ONE, prompt=3)
    others = (embedded("again", ONE, prompt=3), embedded("longer", TWO, prompt=9))
    given = {exchange.step: exchange for exchange in (first, *others, *exchanges)}
    return judged(BASIC, transcript(*given.values(), **fingerprint))


def test_a_right_server_holds_every_rule_that_was_tried():
    assert {finding.outcome for finding in basic()} <= {H, U}


@pytest.mark.parametrize(
    ("again", "outcome"),
    [(ONE, H), ([0.9999, 0.01, 0.0, 0.0], H), ([0.9, 0.43, 0.0, 0.0], V), ([1.0, 0.0, 0.0], V), ([], V)],
)
def test_the_same_text_has_the_same_vector(again, outcome):
    assert said(basic(embedded("again", again, prompt=3)), "same-text-same-vector") == [outcome]


def test_two_texts_with_one_vector_are_told_apart_from_two_that_are_near():
    assert said(basic(embedded("longer", ONE, prompt=9)), "other-text-other-vector") == [V]
    assert said(basic(embedded("longer", [1.0, 1e-9, 0.0, 0.0], prompt=9)), "other-text-other-vector") == [H]


@pytest.mark.parametrize(("counts", "outcome"), [((3, 9), H), ((9, 9), V), ((0, 9), V), ((9, 3), V), ((None, 9), V)])
def test_usage_grows_with_the_text(counts, outcome):
    found = basic(embedded("one", ONE, prompt=counts[0]), embedded("longer", TWO, prompt=counts[1]))

    assert said(found, "embedding-usage-counts-the-text") == [outcome]


def test_token_ids_without_a_tokenizer_are_not_tried():
    assert said(basic(), "token-ids-give-the-text-s-vector") == [U]


def test_token_ids_that_lack_a_special_token_prove_nothing():
    listed = reply("tokenize", {"tokens": [5, 6, 7]}, path="/tokenize")
    fewer = embedded("tokens", THREE, prompt=2)
    same = embedded("tokens", THREE, prompt=3)

    assert said(basic(listed, fewer), "token-ids-give-the-text-s-vector") == [U]
    assert said(basic(listed, same), "token-ids-give-the-text-s-vector") == [V]


@pytest.mark.parametrize(
    ("used", "outcome"),
    [(512, V), (600, H)],
)
def test_a_text_beyond_the_limit_is_cut_where_usage_stays_within_it(used, outcome):
    found = basic(embedded("too-long", ONE, prompt=used), max_model_len="512")

    assert said(found, "too-long-input-is-refused") == [outcome]


def test_an_unknown_limit_is_unknown():
    assert "does not tell its limit" in why(basic(), "too-long-input-is-refused")


def test_a_missing_route_is_no_shortcoming_and_a_model_that_refuses_is():
    missing = reply("one", {"detail": "Not Found"}, path=PATH, status=404)
    absent = judged(BASIC, transcript(missing))
    unknown = refusal("one", "the model `m` does not support embeddings", 404, PATH)

    assert [type(one) for one in absent] == [NotApplicable]
    assert said(judged(BASIC, transcript(unknown)), "embedding-is-a-vector") == [R]


# --------------------------------------------------------------------------- batches


def batch(*exchanges: Exchange) -> list[Any]:
    alone = [embedded(f"alone-{place}", vector) for place, vector in enumerate((ONE, TWO, THREE))]
    right = (embedded("batch", ONE, TWO, THREE, prompt=12), embedded("turned", THREE, ONE, TWO, prompt=12))
    given = {exchange.step: exchange for exchange in (*alone, *right, *exchanges)}
    return judged(BATCH, transcript(*given.values()), many=3)


@pytest.mark.parametrize(
    ("vectors", "indices", "index", "place"),
    [
        ((ONE, TWO, THREE), None, H, H),
        ((THREE, TWO, ONE), [2, 1, 0], H, V),
        ((THREE, TWO, ONE), None, V, V),
        ((ONE, TWO, THREE), [2, 1, 0], V, H),
        ((ONE, TWO, THREE), [0, 0, 0], V, H),
        ((ONE, TWO, THREE), [1, 2, 3], V, H),
    ],
)
def test_index_and_place_are_judged_apart(vectors, indices, index, place):
    found = batch(embedded("batch", *vectors, indices=indices, prompt=12))

    assert said(found, "index-points-to-its-text")[0] is index
    assert said(found, "vectors-come-in-input-order")[0] is place


def test_texts_that_the_model_cannot_tell_apart_show_no_order():
    near = [1.0, 0.01, 0.0, 0.0]
    found = batch(embedded("alone-1", near), embedded("batch", near, ONE, THREE, prompt=12))

    assert said(found, "index-points-to-its-text")[0] is U


def test_a_vector_that_is_nowhere_is_not_out_of_place():
    found = batch(embedded("batch", ONE, [0.0, 0.8, 0.6, 0.0], THREE, prompt=12))

    assert said(found, "vectors-come-in-input-order")[0] is H
    assert said(found, "vector-in-a-batch-is-the-lone-one")[0] is V


# --------------------------------------------------------------------------- base64


def sixty_four(**replies: Any) -> list[Any]:
    given: dict[str, Any] = {"float": ONE, "default": ONE, "float-again": ONE, "base64": packed(ONE)}
    given |= {step.replace("_", "-"): value for step, value in replies.items()}
    both = embedded("base64-batch", packed(ONE), packed(TWO))
    return judged(BASE64, transcript(*(embedded(step, value) for step, value in given.items()), both))


@pytest.mark.parametrize(
    ("value", "check", "outcome", "hint"),
    [
        (packed(THREE), "base64-holds-the-same-numbers", V, "apart"),
        (packed(ONE), "base64-holds-the-same-numbers", H, "bit by bit"),
        (packed([0.9999999, 0.0, 0.0, 0.0]), "base64-holds-the-same-numbers", H, "apart"),
        (packed([0.999, 0.0, 0.0, 0.0]), "base64-holds-the-same-numbers", V, "apart"),
        (packed(ONE, "<e"), "base64-holds-the-same-numbers", V, "16-bit"),
        (packed(ONE, "<d"), "base64-holds-the-same-numbers", V, "64-bit"),
        (packed(ONE, ">f"), "base64-holds-the-same-numbers", V, "other order"),
        ([1.0, 0.0, 0.0, 0.0], "base64-is-text", N, "list of 4 numbers"),
        (None, "base64-is-text", V, "neither"),
        ("!", "base64-holds-the-same-numbers", V, "not base64"),
    ],
)
def test_base64_holds_the_plain_numbers(value, check, outcome, hint):
    found = sixty_four(base64=value)

    assert said(found, check) == [outcome]
    assert hint in why(found, check)


def test_a_server_that_never_repeats_itself_is_held_to_its_own_noise():
    found = sixty_four(float_again=[0.999, 0.001, 0.0, 0.0], base64=packed([0.9995, 0.001, 0.0, 0.0]))

    assert said(found, "base64-holds-the-same-numbers") == [H]


def test_base64_that_nobody_asked_for_is_wrong():
    assert said(sixty_four(default=packed(ONE)), "numbers-come-by-default") == [V]


# --------------------------------------------------------------------------- dimensions


@pytest.mark.parametrize(
    ("half", "size", "begins", "unit"),
    [
        ([0.6, 0.8, 0.0, 0.0], [H], [H], [H]),
        ([0.0, 0.0, 0.6, 0.8], [H], [V], [H]),
        ([0.3, 0.4, 0.0, 0.0], [H], [H], [V]),
        ([0.6, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [N], [], []),
        ([0.6, 0.8], [V], [], []),
    ],
)
def test_a_shorter_vector_is_the_beginning_at_length_one(half, size, begins, unit):
    whole = embedded("whole", [0.6, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    eighth = refusal("eighth", "no", path=PATH)
    found = [
        one for one in judged(DIMENSIONS, transcript(whole, embedded("half", half), eighth)) if one.outcome is not R
    ]

    assert said(found, "dimensions-set-the-size") == size
    assert said(found, "shorter-vector-begins-the-whole") == begins
    assert said(found, "shorter-vector-keeps-length-one") == unit


@pytest.mark.parametrize("probe", [BASIC, BATCH, BASE64, DIMENSIONS], ids=lambda probe: probe.id)
@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"data": {}}', b'{"data": [1]}', b'{"data": []}', b"\xff"])
def test_judges_say_something_of_any_bytes(probe: Probe[Params], body):
    steps = ("one", "alone-0", "float", "default", "whole")
    found = judged(probe, transcript(*(reply(step, body, path=PATH) for step in steps)))

    assert found
    assert all(isinstance(one, NotApplicable) or one.outcome is not H for one in found)
