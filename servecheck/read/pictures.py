"""The format and size of a picture from its first bytes: PNG, JPEG, WebP, GIF. Looks at no pixel."""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["Picture", "picture"]

_SIZED = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG: every start of frame, ITU T.81 table B.1
_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length


class Picture(NamedTuple):
    """A format by its usual name, and pixels; a size of 0 is unknown."""

    format: str
    width: int
    height: int

    @property
    def size(self) -> str:
        """The size as APIs write it."""
        return f"{self.width}x{self.height}"


def picture(data: bytes) -> Picture | None:
    """Return what the bytes are a picture of, format-wise; ``None`` where they are none of the known formats."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return Picture("png", *_read(">II", data, 16))
    if data.startswith(b"\xff\xd8\xff"):
        return Picture("jpeg", *_jpeg(data))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Picture("webp", *_webp(data))
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return Picture("gif", *_read("<HH", data, 6))
    return None


def _read(form: str, data: bytes, at: int) -> tuple[int, int]:
    try:
        first, second = struct.unpack_from(form, data, at)
    except struct.error:
        return 0, 0
    return int(first), int(second)


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF or marker in _BARE:
            at += 1 if marker == 0xFF else 2
            continue
        if marker in _SIZED:
            height, width = _read(">HH", data, at + 5)
            return width, height
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return 0, 0


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8 ":
        width, height = _read("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return 0, 0
