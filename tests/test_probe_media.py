"""Transcription and image generation: shapes, lengths, sizes and times, on replies made by hand."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import pytest

from servecheck.model import Exchange, Json, NotApplicable, Outcome
from servecheck.probes._fixtures import form, png, tone
from servecheck.probes.audio_transcribe import PROBE as AUDIO
from servecheck.probes.images_generate import PROBE as IMAGES
from servecheck.reference.asgi import Request
from servecheck.reference.server import ReferenceServer
from tests.replies import judged, refusal, reply, said, transcript, why

H, V, N, R, U = Outcome.HELD, Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED, Outcome.UNDETERMINED

# --------------------------------------------------------------------------- audio

HEARD = "/v1/audio/transcriptions"
SEGMENTS: list[Json] = [{"start": 0.0, "end": 1.2, "text": "a"}, {"start": 1.2, "end": 2.0, "text": "b"}]


def heard(step: str, body: Json | bytes, **more: Any) -> Exchange:
    return reply(step, body, path=HEARD, **more)


def audio(*exchanges: Exchange) -> list[Any]:
    right = (
        heard("short", {"text": "A tone.", "usage": {"type": "duration", "seconds": 2}}),
        heard("longer", {"text": "A tone.", "usage": {"type": "duration", "seconds": 5}}),
        heard("text", b"A tone.\n", kind="text/plain"),
        heard("verbose", {"text": "A tone.", "duration": 2.0, "segments": SEGMENTS}),
        refusal("broken", "cannot read the audio", path=HEARD),
    )
    given = {exchange.step: exchange for exchange in (*right, *exchanges)}
    return judged(AUDIO, transcript(*given.values()))


def test_right_transcriptions_hold_every_rule():
    found = audio()

    assert {one.outcome for one in found} == {H}
    assert {one.check for one in found} == {check.id for check in AUDIO.checks}


@pytest.mark.parametrize(
    ("exchange", "check", "outcome"),
    [
        (heard("short", {"transcript": "A tone."}), "transcription-is-json-with-a-text", V),
        (heard("text", {"text": "A tone."}), "text-format-gives-plain-text", N),
        (heard("text", b'"A tone."', kind="text/plain"), "text-format-gives-plain-text", H),
        (refusal("text", "no", path=HEARD), "text-format-gives-plain-text", R),
        (heard("verbose", {"text": "A tone."}), "long-form-has-segments", N),
        (heard("verbose", {"text": "A tone.", "duration": 2.0}), "long-form-has-segments", V),
        (heard("verbose", {"text": "", "duration": "2.0", "segments": []}), "long-form-has-segments", H),
        (heard("verbose", {"text": "", "segments": SEGMENTS[::-1]}), "long-form-has-segments", V),
        (heard("verbose", {"text": "", "segments": [{"start": 9, "end": 1, "text": ""}]}), "long-form-has-segments", V),
        (heard("longer", {"text": "", "usage": {"seconds": 30}}), "reported-length-is-the-clip-s", V),
        (heard("broken", {"text": "Thank you."}), "broken-audio-is-refused", V),
        (heard("broken", {"error": "boom"}, status=500), "broken-audio-is-refused", V),
    ],
)
def test_each_format_is_judged_by_its_shape(exchange, check, outcome):
    assert outcome in said(audio(exchange), check)


def test_a_missing_route_makes_the_row_senseless_and_a_refusal_does_not():
    missing = heard("short", {"detail": "Not Found"}, status=404)

    assert [type(one) for one in judged(AUDIO, transcript(missing))] == [NotApplicable]
    assert said(judged(AUDIO, transcript(refusal("short", "no audio", 501, HEARD))), AUDIO.checks[0].id) == [R]


def test_a_clip_is_a_wav_of_its_length():
    with wave.open(io.BytesIO(tone(2.0))) as clip:
        assert (clip.getnframes(), clip.getframerate(), clip.getnchannels()) == (32_000, 16_000, 1)


def test_a_form_comes_apart_as_it_was_put_together():
    file = b"\r\n--\x00binary\r\n"
    kind, body = form({"model": "m", "language": "en"}, file, boundary="abc123")
    read = ReferenceServer().form_of(Request(method="POST", path="/", headers={"content-type": kind}, body=body))

    assert (read.fields, read.file) == ({"model": "m", "language": "en"}, file)


# --------------------------------------------------------------------------- images

PAINTED = "/v1/images/generations"


def painted(step: str, *sizes: tuple[int, int], took: float = 0.5) -> Exchange:
    files = [png(width, height, lambda _, __: (1, 2, 3)) for width, height in sizes]
    data: list[Json] = [{"b64_json": base64.b64encode(file).decode()} for file in files]
    return reply(step, {"created": 1, "data": data}, path=PAINTED, took=took)


def images(*exchanges: Exchange) -> list[Any]:
    right = (
        *(painted(step, (512, 256)) for step in ("first", "second", "third")),
        painted("no-size", (64, 64)),
        painted("two", (512, 256), (512, 256)),
        refusal("bad-size", "size must be WIDTHxHEIGHT", path=PAINTED),
    )
    given = {exchange.step: exchange for exchange in (*right, *exchanges)}
    return judged(IMAGES, transcript(*given.values()))


def test_right_images_hold_every_rule():
    found = images()

    assert {one.outcome for one in found} == {H}
    assert {one.check for one in found} == {check.id for check in IMAGES.checks}


@pytest.mark.parametrize(
    ("exchange", "check", "outcome"),
    [
        (painted("first", (64, 64)), "image-has-the-size-asked-for", N),
        (painted("first", (256, 512)), "image-has-the-size-asked-for", V),
        (reply("first", {"data": [{"url": "http://x/1.png"}]}, path=PAINTED), "image-comes-as-asked", N),
        (reply("first", {"data": [{"b64_json": "QUJD"}]}, path=PAINTED), "image-comes-as-asked", V),
        (painted("first", (512, 256), (512, 256)), "image-comes-as-asked", V),
        (painted("two", (512, 256)), "n-gives-that-many-images", N),
        (painted("two", (512, 256), (512, 256), (512, 256)), "n-gives-that-many-images", V),
        (painted("bad-size", (64, 64)), "impossible-size-is-refused", V),
        (painted("third", (512, 256), took=9.0), "repeated-size-stalls-no-more", V),
        (painted("third", (512, 256), took=1.2), "repeated-size-stalls-no-more", H),
    ],
)
def test_size_number_and_time_are_those_asked_for(exchange, check, outcome):
    assert outcome in said(images(exchange), check)


@pytest.mark.parametrize(
    ("first", "told"), [(25.0, "compiled at first use"), (0.6, "no compilation"), (2.0, "no compilation")]
)
def test_the_first_time_against_the_later_ones_tells_who_compiles(first, told):
    assert told in why(images(painted("first", (512, 256), took=first)), "repeated-size-stalls-no-more")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"data": [null]}', b'{"data": [{"b64_json": 5}]}'])
def test_judges_say_something_of_any_bytes(body):
    for probe, step, path in ((IMAGES, "first", PAINTED), (AUDIO, "short", HEARD)):
        found = judged(probe, transcript(reply(step, body, path=path)))

        assert found
        assert {one.outcome for one in found} <= {V, U}
