"""Images of another size, number or form than was asked for, and sizes that are compiled again and again."""

from __future__ import annotations

import itertools
from typing import Any

from servecheck.model import Outcome
from servecheck.reference.asgi import Event
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer

__all__ = ["HARMLESS", "MUTANTS"]

_COMES, _SIZE, _COUNT = "image-comes-as-asked", "image-has-the-size-asked-for", "n-gives-that-many-images"
_TIME, _BAD = "repeated-size-stalls-no-more", "impossible-size-is-refused"


class ImagesNotServed(ReferenceServer):
    """Refuses although the route is there: the model paints nothing."""

    def size_of(self, body: Event) -> tuple[int, int]:  # noqa: ARG002
        """Refuse."""
        raise ApiError("this model generates no images", status=501)


class SizeIgnored(ReferenceServer):
    """Paints every image in one size."""

    def paint(self, prompt: str, place: int, size: tuple[int, int]) -> bytes:  # noqa: ARG002
        """Paint the default."""
        return super().paint(prompt, place, (64, 64))


class NearestSize(ReferenceServer):
    """Paints the nearest size that the model was trained for, without a word."""

    def paint(self, prompt: str, place: int, size: tuple[int, int]) -> bytes:
        """Round up."""
        return super().paint(prompt, place, (size[0] + 32, size[1]))


class Turned(ReferenceServer):
    """Takes height for width."""

    def paint(self, prompt: str, place: int, size: tuple[int, int]) -> bytes:
        """Turn."""
        return super().paint(prompt, place, size[::-1])


class UrlInstead(ReferenceServer):
    """Returns a URL where base64 was asked for."""

    def image_entry(self, data: bytes) -> Event:  # noqa: ARG002
        """Return a URL."""
        return {"url": "http://127.0.0.1/images/1.png"}


class DataUrl(ReferenceServer):
    """Puts a data URL where base64 belongs."""

    def image_entry(self, data: bytes) -> Event:
        """Add the beginning of a URL."""
        return {"b64_json": "data:image/png;base64," + super().image_entry(data)["b64_json"]}


class RawPixels(ReferenceServer):
    """Encodes the pixels without a file around them."""

    def paint(self, prompt: str, place: int, size: tuple[int, int]) -> bytes:  # noqa: ARG002
        """Return pixels."""
        return bytes(size[0] * 3)


class OneImage(ReferenceServer):
    """Paints one image whatever n says."""

    def count_of(self, body: Event) -> int:  # noqa: ARG002
        """Return one."""
        return 1


class NoSeveral(ReferenceServer):
    """Takes one image a request."""

    def count_of(self, body: Event) -> int:
        """Refuse more."""
        if super().count_of(body) > 1:
            raise ApiError("n must be 1", param="n")
        return 1


class _Timed(ReferenceServer):
    """Takes as long as :meth:`seconds` says for each request, counted from 1."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401
        super().__init__(**config)
        self._painted = itertools.count(1)

    def seconds(self, number: int) -> float:
        """Return the seconds of a request."""
        raise NotImplementedError

    def paint_delay(self, size: tuple[int, int]) -> float:  # noqa: ARG002
        """Count."""
        return self.seconds(next(self._painted))


class CompiledAgain(_Timed):
    """Forgets what it compiled: the third request of a size waits for the compiler, as the first did."""

    def seconds(self, number: int) -> float:
        """Stall at the first and the third."""
        return 12.0 if number in (1, 3) else 0.5


class BadSizeFails(ReferenceServer):
    """Fails inside on a size that is none."""

    def size_of(self, body: Event) -> tuple[int, int]:
        """Fail."""
        try:
            return super().size_of(body)
        except ApiError as wrong:
            raise ApiError("not enough values to unpack", status=500, kind="InternalServerError") from wrong


class BadSizeTaken(ReferenceServer):
    """Paints the default where the size is none."""

    def size_of(self, body: Event) -> tuple[int, int]:
        """Fall back."""
        try:
            return super().size_of(body)
        except ApiError:
            return 64, 64


# --------------------------------------------------------------------------- odd, but right


class CompiledOnce(_Timed):
    """Compiles at the first request and is quick afterwards."""

    def seconds(self, number: int) -> float:
        """Stall once."""
        return 25.0 if number == 1 else 0.4


class MoreAboutIt(ReferenceServer):
    """Adds the prompt that was made of the prompt, and the format."""

    def image_entry(self, data: bytes) -> Event:
        """Add fields."""
        return {**super().image_entry(data), "revised_prompt": "A red ball.", "url": None}


class NoImages(ReferenceServer):
    """Has no such route."""

    @classmethod
    def routes(cls) -> dict[tuple[str, str], str]:
        """Leave the route out."""
        return {key: name for key, name in super().routes().items() if name != "reply_images"}


class SlowlyDifferent(_Timed):
    """Takes a third longer or shorter each time, as a loaded machine does."""

    def seconds(self, number: int) -> float:
        """Vary."""
        return (3.0, 2.2, 2.9, 2.5)[number % 4]


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED

MUTANTS = (
    Mutant(id="images-not-served", server=ImagesNotServed, trips=((_COMES, _R),)),
    Mutant(id="size-ignored", server=SizeIgnored, trips=((_SIZE, _N),), source="mudler/LocalAI#2430"),
    Mutant(id="nearest-size", server=NearestSize, trips=((_SIZE, _V),), source="router-for-me/CLIProxyAPI#5860"),
    Mutant(id="turned", server=Turned, trips=((_SIZE, _V),)),
    Mutant(id="url-instead", server=UrlInstead, trips=((_COMES, _N),), source="diegosouzapw/OmniRoute#9932"),
    Mutant(id="data-url", server=DataUrl, trips=((_COMES, _V),)),
    Mutant(id="raw-pixels", server=RawPixels, trips=((_COMES, _V),)),
    Mutant(id="one-image", server=OneImage, trips=((_COUNT, _N),)),
    Mutant(id="no-several", server=NoSeveral, trips=((_COUNT, _R),)),
    Mutant(id="compiled-again", server=CompiledAgain, trips=((_TIME, _V),)),
    Mutant(id="bad-size-fails", server=BadSizeFails, trips=((_BAD, _V),)),
    Mutant(id="bad-size-taken", server=BadSizeTaken, trips=((_BAD, _V),)),
)

HARMLESS = (
    Harmless(id="compiled-once", server=CompiledOnce),
    Harmless(id="more-about-it", server=MoreAboutIt),
    Harmless(id="slowly-different", server=SlowlyDifferent),
    Harmless(id="no-images", server=NoImages, models=("obedient",)),
)
