"""Which software is behind an endpoint, by the names people give it, and where its trackers are; a list, no look-ups.

The accelerator stack is declared by the user in most cases: vLLM looks the same on the wire on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servecheck.model import Fingerprint

__all__ = ["ENGINES", "STACKS", "Stack", "named", "on_tpu", "repositories", "stack_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A way in which an engine runs on an accelerator."""

    id: str
    title: str
    engines: tuple[str, ...]
    aliases: tuple[str, ...]
    repositories: tuple[str, ...]


ENGINES: dict[str, tuple[str, ...]] = {
    "vllm": ("vllm-project/vllm",),
    "sglang": ("sgl-project/sglang",),
    "sgl-jax": ("sgl-project/sglang-jax",),
    "llama.cpp": ("ggml-org/llama.cpp",),
    "tgi": ("huggingface/text-generation-inference",),
    "ollama": ("ollama/ollama",),
    "transformers": ("huggingface/transformers",),
    "litellm": ("BerriAI/litellm",),
    "llm-d": ("llm-d/llm-d",),
    "ray-serve": ("ray-project/ray",),
    "inference-gateway": ("kubernetes-sigs/gateway-api-inference-extension",),
}
"""The trackers of engines and gateways, by the names that the report gives them."""

STACKS = (
    Stack(
        id="tpu-inference",
        title="vLLM on TPU by tpu-inference",
        engines=("vllm",),
        aliases=("vllm-tpu", "jax", "torchax", "flax_nnx"),
        repositories=("vllm-project/tpu-inference",),
    ),
    Stack(
        id="torchtpu",
        title="vLLM on TPU by TorchTPU",
        engines=("vllm",),
        aliases=("vllm-torchtpu", "torch-tpu", "torch_tpu", "vllm_torchtpu"),
        repositories=("vllm-project/vllm-torchtpu", "google-pytorch/torch_tpu"),
    ),
    Stack(
        id="sglang-torchtpu",
        title="SGLang on TPU by TorchTPU",
        engines=("sglang",),
        aliases=("sgl-torchtpu",),
        repositories=("sgl-project/sglang-torchtpu", "google-pytorch/torch_tpu"),
    ),
    Stack(
        id="sgl-jax",
        title="SGLang on TPU by SGL-JAX",
        engines=("sgl-jax", "sglang"),
        aliases=("sglang-jax", "sgl_jax"),
        repositories=("sgl-project/sglang-jax",),
    ),
)
"""The TPU stacks that are known of, by engine."""


def named(name: str, engine: str | None = None) -> Stack | None:
    """Return the stack that goes by a name; TorchTPU is one of two, by the engine."""
    wanted = name.strip().lower().replace(" ", "-")
    found = next((each for each in STACKS if wanted == each.id or wanted in each.aliases), None)
    if found is not None and found.id == "torchtpu" and engine == "sglang":
        return next(each for each in STACKS if each.id == "sglang-torchtpu")
    return found


def stack_of(known: Fingerprint) -> Stack | None:
    """Return the stack that an endpoint is known or declared to run on; an engine that is a stack names itself."""
    said, engine = known.value("tpu_stack"), known.value("engine")
    if said is not None:
        return named(said, engine)
    return named(engine) if engine == "sgl-jax" else None


def on_tpu(known: Fingerprint) -> bool | None:
    """Tell whether an endpoint runs on TPUs, ``None`` where nothing says."""
    if stack_of(known) is not None:
        return True
    device = known.value("device") or known.value("accelerator")
    return None if device is None else re.search(r"\btpu|v5e|v5p|v6e|v7x", device, re.IGNORECASE) is not None


def repositories(known: Sequence[Fingerprint]) -> tuple[str, ...]:
    """Return the trackers to look into: the engines' and gateways', and their TPU stacks'.

    Where the stack is not known, all that the engine could run on are named, unless it is known to run on something
    else. Where nothing is known at all, those of TPUs are.
    """
    found: list[str] = []
    for each in known:
        names = [name for name in (each.value("engine"), each.value("gateway")) if name]
        found += [repository for name in names for repository in ENGINES.get(name, ())]
        stack = stack_of(each)
        if stack is not None:
            found += stack.repositories
        elif on_tpu(each) is not False:
            found += _of_engine(each.value("engine"))
    return tuple(dict.fromkeys(found or _of_engine(None)))


def _of_engine(engine: str | None) -> Iterable[str]:
    for each in STACKS:
        if engine is None or engine in each.engines:
            yield from each.repositories
