"""Re-encodes a GGUF file's Q4_1 tensors as Q8_0, for engines that read no Q4_1; every other tensor must fit already.

    python q8_0_gguf.py IN.gguf OUT.gguf

Needs numpy. The numbers stay the same up to the rounding of Q8_0: a Q4_1 block has 16 levels, a Q8_0 block 255.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

F32, Q4_1, Q8_0 = 0, 3, 8
_BLOCK = 32
_BYTES = {F32: 4 * _BLOCK, Q4_1: 20, Q8_0: 34}
"""Bytes of 32 values in each type that the files at hand use."""
_FILE_TYPE, _MOSTLY_Q8_0 = b"general.file_type", 7
# Sizes of the fixed-width metadata types by their numbers; 8 is a text, 9 an array.
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class _Tensor(NamedTuple):
    name: bytes
    shape: tuple[int, ...]
    type: int
    offset: int


class _Cursor:
    """A place in the file's bytes that moves as it is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return int(value)

    def text(self) -> bytes:
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def skip(self, kind: int) -> None:
        if kind == 8:
            self.text()
        elif kind == 9:
            inner, count = self.take("I"), self.take("Q")
            if inner in _WIDTHS:
                self.at += count * _WIDTHS[inner]
            else:
                for _ in range(count):
                    self.skip(inner)
        else:
            self.at += _WIDTHS[kind]


def convert(data: bytes) -> bytes:
    """Return the file with its Q4_1 tensors as Q8_0; raises ``ValueError`` where it is something else than expected."""
    read = _Cursor(data)
    if data[:4] != b"GGUF" or struct.unpack_from("<I", data, 4)[0] != 3:
        raise ValueError("not a GGUF file of version 3")
    read.at = 8
    tensors, pairs = read.take("Q"), read.take("Q")
    head, alignment = bytearray(data[: read.at]), 32
    for _ in range(pairs):
        start, key = read.at, read.text()
        kind = read.take("I")
        value = read.at
        read.skip(kind)
        pair = bytearray(data[start : read.at])
        if key == b"general.alignment":
            (alignment,) = struct.unpack_from("<I", data, value)
        if key == _FILE_TYPE:
            struct.pack_into("<I", pair, value - start, _MOSTLY_Q8_0)
        head += pair
    listed = []
    for _ in range(tensors):
        name = read.text()
        shape = tuple(read.take("Q") for _ in range(read.take("I")))
        listed.append(_Tensor(name, shape, read.take("I"), read.take("Q")))
    begin = -(-read.at // alignment) * alignment
    body = bytearray()
    for tensor in listed:
        body += bytes(-len(body) % alignment)
        kind = Q8_0 if tensor.type == Q4_1 else tensor.type
        head += struct.pack("<Q", len(tensor.name)) + tensor.name + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape) + struct.pack("<IQ", kind, len(body))
        body += _encoded(data, begin, tensor)
    return bytes(head) + bytes(-len(head) % alignment) + bytes(body)


def _encoded(data: bytes, begin: int, tensor: _Tensor) -> bytes:
    if tensor.type not in _BYTES:
        raise ValueError(f"{tensor.name.decode()} is of type {tensor.type}; this knows only F32, Q4_1 and Q8_0")
    blocks = int(np.prod(tensor.shape)) // _BLOCK
    raw = data[begin + tensor.offset :][: blocks * _BYTES[tensor.type]]
    if tensor.type != Q4_1:
        return raw
    # A Q4_1 block: a scale and a minimum (f16), then 32 four-bit numbers, the low halves of all bytes first.
    block = np.frombuffer(raw, np.dtype([("scale", "<f2"), ("least", "<f2"), ("packed", "u1", 16)]))
    levels = np.concatenate([block["packed"] & 15, block["packed"] >> 4], axis=1).astype(np.float32)
    values = levels * block["scale"].astype(np.float32)[:, None] + block["least"].astype(np.float32)[:, None]
    # A Q8_0 block: a scale (f16), then 32 signed bytes.
    scale = np.abs(values).max(axis=1) / 127
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    made = np.empty(blocks, np.dtype([("scale", "<f2"), ("numbers", "i1", 32)]))
    made["scale"] = scale
    made["numbers"] = np.rint(values * inverse[:, None])
    return made.tobytes()


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    beside = target.with_name(target.name + ".part")
    beside.write_bytes(convert(source.read_bytes()))
    beside.replace(target)  # whole or not there: a second setup must not find half a file
