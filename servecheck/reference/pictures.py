"""Pictures in and out: what a model gets of an image part, and ``POST /v1/images/generations``. Paints one colour."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
import struct
import zlib
from functools import lru_cache
from typing import Any, ClassVar

from servecheck.probes._fixtures import Colour, png
from servecheck.reference import fields
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Base
from servecheck.reference.fields import ApiError

__all__ = ["PictureRoutes", "pixels"]

_DATA_URL = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,([A-Za-z0-9+/=\s]+)\Z")
_SIZE = re.compile(r"([1-9][0-9]{1,3})x([1-9][0-9]{1,3})\Z")
_PATCH = 28  # pixels on a side that become one token


def pixels(data: bytes) -> tuple[int, int, bytes]:
    """Return width, height and the pixel rows of a PNG; raises ``ValueError`` where it is none, or is damaged."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("not a PNG")
    at, header, packed = 8, b"", b""
    try:
        while at < len(data):
            (length,) = struct.unpack_from(">I", data, at)
            name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
            if zlib.crc32(name + body) != struct.unpack_from(">I", data, at + 8 + length)[0]:
                raise ValueError("damaged")
            header, packed = (body if name == b"IHDR" else header), packed + (body if name == b"IDAT" else b"")
            at += 12 + length
        width, height = struct.unpack_from(">II", header)
        return width, height, zlib.decompress(packed)
    except (struct.error, zlib.error) as wrong:
        raise ValueError(f"damaged: {wrong}") from wrong


@lru_cache(maxsize=32)
def _plain(width: int, height: int, colour: Colour) -> bytes:
    return png(width, height, lambda _, __: colour)


class PictureRoutes(Base):
    """Images in prompts, and generated ones."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/v1/images/generations"): "reply_images"}

    def picture_text(self, part: Event, where: str) -> str:
        """Return what stands for an image in the prompt: a token for each patch, by its pixels alone."""
        given = part.get("image_url")
        url = given.get("url") if isinstance(given, dict) else given
        return self.patches(self.picture_bytes(url, where), where)

    def picture_bytes(self, url: Any, where: str) -> bytes:  # noqa: ANN401
        """Return the bytes of a data URL; nothing is fetched from anywhere."""
        found = _DATA_URL.match(url) if isinstance(url, str) else None
        if found is None:
            raise ApiError(f"{where}: image_url must be a data URL of an image in base64", param=where)
        try:
            return base64.b64decode(found[1], validate=True)
        except binascii.Error as wrong:
            raise ApiError(f"{where}: image_url is not base64: {wrong}", param=where) from wrong

    def patches(self, data: bytes, where: str) -> str:
        """Return the tokens of a picture as text."""
        try:
            width, height, rows = pixels(data)
        except ValueError as wrong:
            raise ApiError(f"{where}: cannot read the image: {wrong}", param=where) from wrong
        count = -(-width // _PATCH) * -(-height // _PATCH)
        digest = hashlib.blake2b(rows, digest_size=16).digest()
        # Bytes that are no text are a token each, so that a picture takes as many as it has patches.
        return "".join(chr(1 + digest[place % 16] % 7 + (place * 5) % 2) for place in range(count))

    # ------------------------------------------------------------------ generating

    async def reply_images(self, request: Request) -> Reply:
        """Answer a request for images."""
        body = self.body_of(request)
        self.check_model(body)
        prompt = fields.text(body, "prompt")
        if not prompt:
            raise ApiError("prompt must not be empty", param="prompt")
        size = self.size_of(body)
        count = self.count_of(body)
        await asyncio.sleep(self.paint_delay(size))
        data = [self.image_entry(self.paint(prompt, place, size)) for place in range(count)]
        return json_reply({"created": int(self.clock()), "data": data})

    def size_of(self, body: Event) -> tuple[int, int]:
        """Return width and height."""
        found = _SIZE.match(fields.text(body, "size", "64x64"))
        if found is None or max(int(found[1]), int(found[2])) > 2048:
            raise ApiError(f"size must be WIDTHxHEIGHT, got {body.get('size')!r}", param="size")
        return int(found[1]), int(found[2])

    def count_of(self, body: Event) -> int:
        """Return how many images are asked for."""
        return fields.integer(body, "n", 1, 1, 8)

    def paint_delay(self, size: tuple[int, int]) -> float:  # noqa: ARG002
        """Return the seconds that one request takes."""
        return 0.5

    def paint(self, prompt: str, place: int, size: tuple[int, int]) -> bytes:
        """Return an image of one colour, which the prompt decides."""
        red, green, blue = hashlib.blake2b(f"{prompt} {place}".encode(), digest_size=3).digest()
        return _plain(*size, (red, green, blue))

    def image_entry(self, data: bytes) -> Event:
        """Return one entry of ``data``."""
        return {"b64_json": base64.b64encode(data).decode()}
