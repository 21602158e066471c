"""A prefix cache of full token blocks, keyed by salt and everything before them; the oldest block goes first."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

__all__ = ["PrefixCache"]


class PrefixCache:
    """Which blocks of ``block`` tokens are computed; at most ``capacity`` blocks."""

    def __init__(self, *, block: int, capacity: int) -> None:
        self.block, self.capacity = block, capacity
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def _keys(self, salt: str, ids: Sequence[int]) -> Iterator[bytes]:
        key = hashlib.blake2b(salt.encode(), digest_size=16).digest()
        for end in range(self.block, len(ids) + 1, self.block):
            data = array("I", ids[end - self.block : end]).tobytes()
            key = hashlib.blake2b(key + data, digest_size=16).digest()
            yield key

    def cached(self, salt: str, ids: Sequence[int]) -> int:
        """Return how many leading tokens need no computing; always fewer than there are, since one makes the logits."""
        count = 0
        for key in self._keys(salt, ids[:-1]):
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            count += self.block
        return count

    def store(self, salt: str, ids: Sequence[int]) -> None:
        """Remember the full blocks of these tokens as computed."""
        for key in self._keys(salt, ids):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)
