"""Stand-in for SGLang's compiled CPU kernel package, which no registry serves.

On a CPU without AMX, SGLang 0.5.23 computes with its own PyTorch code and imports from the kernel package only
index bookkeeping. The one helper that a dense model needs is here; the speculative-decoding ones refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__version__ = "0.0.0"


def assign_req_to_token_pool_cpu(
    req_pool_indices: Any,  # noqa: ANN401 (tensors; torch is not here to be named)
    req_to_token: Any,  # noqa: ANN401
    start_offset: Any,  # noqa: ANN401
    end_offset: Any,  # noqa: ANN401
    out_cache_loc: Any,  # noqa: ANN401
    pool_len: int,  # noqa: ARG001 (the caller gives it)
) -> None:
    """Write the new cache slots of each request into its row of the table, from its start to its end."""
    taken = 0
    spans = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    for request, start, end in spans:
        slots = out_cache_loc[taken : taken + end - start]
        req_to_token[request, start:end] = slots.to(req_to_token.dtype)
        taken += end - start


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"{name} needs SGLang's compiled CPU kernel")

    return refuse


copy_all_layer_kv_cache_cpu = _refuse("copy_all_layer_kv_cache_cpu")
build_draft_decode_metadata_cpu = _refuse("build_draft_decode_metadata_cpu")
rotate_input_ids_cpu = _refuse("rotate_input_ids_cpu")
fill_accept_out_cache_loc_cpu = _refuse("fill_accept_out_cache_loc_cpu")
fill_bonus_tokens_cpu = _refuse("fill_bonus_tokens_cpu")
assign_draft_cache_locs_contiguous_cpu = _refuse("assign_draft_cache_locs_contiguous_cpu")
assign_extend_cache_locs_cpu = _refuse("assign_extend_cache_locs_cpu")
build_tree_kernel_efficient_cpu = _refuse("build_tree_kernel_efficient_cpu")
verify_tree_greedy_cpu = _refuse("verify_tree_greedy_cpu")
