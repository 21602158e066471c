"""Pictures and sounds made by code, small and the same each time; and a form that carries a file. No media library."""

from __future__ import annotations

import base64
import io
import math
import struct
import wave
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache

__all__ = ["Colour", "data_url", "form", "picture", "plain", "png", "tone"]

Colour = tuple[int, int, int]
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RATE = 16_000  # what speech models take


def png(width: int, height: int, colour: Callable[[int, int], Colour], *, comment: str = "") -> bytes:
    """Return a PNG of these colours by column and row; a comment makes other bytes of the same picture."""
    rows = b"".join(b"\0" + b"".join(bytes(colour(column, row)) for column in range(width)) for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    if comment:
        chunks.insert(1, (b"tEXt", b"Comment\0" + comment.encode("latin-1", "replace")))
    return _SIGNATURE + b"".join(map(_chunk, chunks))


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    name, data = part
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@lru_cache(maxsize=8)
def picture(kind: str, *, comment: str = "", size: int = 224) -> bytes:
    """Return a square PNG with pixels on a side: ``stripes`` in red and white, or ``squares`` in blue and black."""
    step = size // 8

    def stripes(_: int, row: int) -> Colour:
        return (220, 20, 20) if row // step % 2 else (255, 255, 255)

    def squares(column: int, row: int) -> Colour:
        return (20, 20, 220) if (column // step + row // step) % 2 else (0, 0, 0)

    return png(size, size, stripes if kind == "stripes" else squares, comment=comment)


@lru_cache(maxsize=16)
def plain(colour: Colour, *, size: int = 224) -> bytes:
    """Return a square PNG of one colour."""
    return png(size, size, lambda _, __: colour)


def data_url(data: bytes, media: str = "image/png") -> str:
    """Return bytes as a data URL."""
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


@lru_cache(maxsize=4)
def tone(seconds: float, hertz: float = 220.0) -> bytes:
    """Return a WAV file: one channel of 16 bits, a tone that swells and fades as syllables do."""
    frames = bytearray()
    for place in range(int(seconds * _RATE)):
        at = place / _RATE
        swell = 0.5 - 0.5 * math.cos(2 * math.pi * 3 * at)
        frames += struct.pack("<h", int(12_000 * swell * math.sin(2 * math.pi * hertz * at)))
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(bytes(frames))
    return made.getvalue()


def form(fields: Mapping[str, str], file: bytes, *, boundary: str, name: str = "clip.wav") -> tuple[str, bytes]:
    """Return the content type and the body of a multipart form with one file in ``file`` (RFC 7578)."""
    made = bytearray()
    for key, value in fields.items():
        made += f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
    made += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'.encode()
    made += b"Content-Type: audio/wav\r\n\r\n" + file + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", bytes(made)
