"""Images in prompts: seen, dropped, read as text, or nobody can tell; and what the pictures are made of."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from servecheck.model import Exchange, Outcome
from servecheck.probes._fixtures import data_url, picture, png
from servecheck.probes.vision_image import PROBE
from servecheck.read.pictures import Picture
from servecheck.read.pictures import picture as read_picture
from servecheck.reference.pictures import pixels
from tests.replies import chat, judged, refusal, reply, said, transcript, why

H, V, N, R, U = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.UNDETERMINED
SEEN, GROWN, PIXELS = "image-reaches-the-model", "image-makes-the-prompt-longer", "image-is-read-as-pixels"
SEVERAL, BAD, SANE = "every-image-is-seen", "damaged-image-is-refused", "answer-to-an-image-is-text"

RIGHT = {
    "text": chat("text", "I see no picture here.", prompt=20, logprobs=(-0.5, -0.1)),
    "stripes": chat("stripes", "Red stripes on white.", prompt=84, logprobs=(-0.2, -0.3)),
    "squares": chat("squares", "Blue squares on black.", prompt=84, logprobs=(-0.4, -0.1)),
    "again": chat("again", "Red stripes on white.", prompt=84, logprobs=(-0.2, -0.3)),
    "commented": chat("commented", "Red stripes on white.", prompt=84, logprobs=(-0.2, -0.3)),
    "both": chat("both", "Stripes and squares.", prompt=149, logprobs=(-0.2, -0.3)),
    "twice": chat("twice", "Stripes and stripes.", prompt=149, logprobs=(-0.2, -0.9)),
    "low": chat("low", "Red.", prompt=40),
    "messages-text": reply("messages-text", {"usage": {"input_tokens": 26}}, path="/v1/messages"),
    "messages-image": reply(
        "messages-image", {"usage": {"input_tokens": 20, "cache_read_input_tokens": 72}}, path="/v1/messages"
    ),
    "damaged": refusal("damaged", "cannot read the image"),
    "no-url": refusal("no-url", "not base64"),
}


def judge(*exchanges: Exchange) -> list[Any]:
    given = RIGHT | {exchange.step: exchange for exchange in exchanges}
    return judged(PROBE, transcript(*given.values()))


def test_a_right_server_holds_every_rule():
    found = judge()

    assert {one.outcome for one in found} == {H}
    assert {one.check for one in found} == {check.id for check in PROBE.checks}


def test_a_text_model_that_refuses_is_unsupported_and_one_that_fails_is_broken():
    refused, failed = refusal("stripes", "takes no images"), reply("stripes", {"error": "boom"}, status=500)

    assert [one.outcome for one in judge(refused)] == [H, R]
    assert [one.outcome for one in judge(failed)] == [H, V]


def test_a_refusal_beside_a_refused_text_part_says_nothing():
    assert [one.outcome for one in judge(refusal("stripes"), refusal("text"))] == [H, U]


BLIND = chat("squares", "Red stripes on white.", prompt=84, logprobs=(-0.2, -0.3))


@pytest.mark.parametrize(
    ("changed", "outcome", "hint"),
    [
        ([BLIND], N, "last digit"),
        (
            [chat(step, "I see no picture here.", prompt=20, logprobs=(-0.5, -0.1)) for step in ("stripes", "squares")],
            N,
            "dropped",
        ),
        ([chat("squares", "Red stripes on white.", prompt=84, logprobs=(-0.2, -0.31))], H, "log probabilities"),
        ([chat(step, "Yes.", prompt=84, logprobs=(0.0, 0.0)) for step in ("stripes", "squares")], U, "certain"),
        ([chat(step, "Yes.", prompt=84) for step in ("stripes", "squares")], U, "no log probabilities"),
        (
            [
                chat("again", "Red stripes on white.", prompt=84, logprobs=(-0.25, -0.3)),
                chat("squares", "Red stripes on white.", prompt=84, logprobs=(-0.2, -0.31)),
            ],
            U,
            "so does the same picture",
        ),
    ],
)
def test_an_image_is_seen_where_another_one_moves_the_answer(changed, outcome, hint):
    found = judge(*changed)

    assert said(found, SEEN) == [outcome]
    assert hint in why(found, SEEN)


@pytest.mark.parametrize(("last", "outcome"), [("Yes.", N), ("No.", H)])
def test_without_log_probabilities_eight_pictures_tell(last, outcome):
    same = [chat(step, "Yes.", prompt=84) for step in ("stripes", "squares", *(f"colour-{n}" for n in range(5)))]

    assert said(judge(*same, chat("colour-5", last, prompt=84)), SEEN) == [outcome]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (reply("messages-image", {"usage": {"input_tokens": 26}}, path="/v1/messages"), [N]),
        (reply("messages-image", {"usage": {}}, path="/v1/messages"), [U]),
        (reply("messages-image", {"error": "boom"}, path="/v1/messages", status=500), [V]),
        (refusal("messages-image", "images are not supported", path="/v1/messages"), [H]),
    ],
)
def test_another_route_may_refuse_an_image_but_not_drop_it(answer, outcome):
    refused = refusal("stripes", "takes no images")

    assert said(judge(answer), "messages-route-drops-no-image") == outcome
    assert said(judge(answer, refused), "messages-route-drops-no-image") == outcome


@pytest.mark.parametrize(("prompt", "outcome"), [(84, H), (90, H), (3_900, V), (None, U)])
def test_more_bytes_of_the_same_picture_make_no_longer_prompt(prompt, outcome):
    assert said(judge(chat("commented", "Red.", prompt=prompt)), PIXELS) == [outcome]


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ([chat("both", "Stripes.", prompt=84, logprobs=(-0.2, -0.3))], V),
        ([chat("twice", "Stripes and squares.", prompt=149, logprobs=(-0.2, -0.3))], V),
        ([refusal("both", "At most 1 image(s) may be provided")], R),
        ([chat("both", "Both.", prompt=None)], U),
    ],
    ids=["dropped", "the first again", "refused", "no usage"],
)
def test_two_images_are_both_seen(changed, outcome):
    assert said(judge(*changed), SEVERAL) == [outcome]


def test_garbage_counts_only_beside_a_sane_answer_to_text():
    spoilt = chat("stripes", "!!!!!!!!!!!!!!!!", prompt=84, logprobs=(-0.2, -0.3))

    assert said(judge(spoilt), SANE) == [V]
    assert said(judge(spoilt, chat("text", "!!!!!!!!!!!!!!!!", prompt=20)), SANE) == [H]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(refusal("damaged"), H), (chat("damaged", "A nice picture."), V), (reply("damaged", b"", status=500), V)],
)
def test_what_is_no_picture_is_refused(answer, outcome):
    assert said(judge(answer), BAD)[0] is outcome


@pytest.mark.parametrize("body", [b"", b"null", b'{"choices": []}', b'{"choices": [{"message": 1}]}'])
def test_the_judge_says_something_of_any_bytes(body):
    found = judged(PROBE, transcript(*(reply(step, body) for step in RIGHT)))

    assert found
    assert H not in said(found, SEEN)


# --------------------------------------------------------------------------- the pictures themselves


def test_a_comment_changes_the_bytes_and_no_pixel():
    plain, commented = picture("stripes"), picture("stripes", comment="x" * 3_000)

    assert len(commented) > len(plain) + 3_000
    assert pixels(plain) == pixels(commented)
    assert pixels(plain) != pixels(picture("squares"))
    assert data_url(plain).startswith("data:image/png;base64,iVBOR")


def test_a_made_png_is_small_and_says_its_size():
    made = png(300, 20, lambda column, row: (column % 256, row, 0))

    assert read_picture(made) == Picture("png", 300, 20)
    assert zlib.crc32(b"IEND").to_bytes(4, "big") == made[-4:]
    assert len(picture("stripes")) < 3_000


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"GIF89a\x10\x00\x20\x00", Picture("gif", 16, 32)),
        (b"\xff\xd8\xff\xe0\x00\x04\x00\x00\xff\xc0\x00\x11\x08\x00\x20\x00\x10\x03", Picture("jpeg", 16, 32)),
        (b"\xff\xd8\xff\xe0", Picture("jpeg", 0, 0)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x0f\x00\x00\x1f\x00\x00", Picture("webp", 16, 32)),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + (15 | 31 << 14).to_bytes(4, "little"), Picture("webp", 16, 32)),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + b"\x10\x00\x20\x00", Picture("webp", 16, 32)),
        (b"\x89PNG\r\n\x1a\n", Picture("png", 0, 0)),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_format_and_size_stand_in_the_first_bytes(data, found):
    assert read_picture(data) == found
