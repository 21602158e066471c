"""A causal language model of Transformers on one torch device, in eager mode: plain kernels, nothing compiled.

Needs the extra ``[transformers]``. It is slow and has one request in flight; it is right as far as Transformers is.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from servecheck.errors import UsageError
from servecheck.inprocess.app import Distribution

__all__ = ["DTYPES", "Eager", "load"]

DTYPES = ("bfloat16", "float16", "float32")


def _module(name: str) -> Any:  # noqa: ANN401 - these libraries are not here when types are checked
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"a model in this process needs {name}: install servecheck[transformers], with the torch of your device "
            f"({error})"
        ) from error


class _Row:
    """Logits of one place, turned into log probabilities when they are asked for; in float32, as engines do."""

    def __init__(self, torch: Any, logits: Any) -> None:  # noqa: ANN401
        self._torch = torch
        self._logits = logits
        self._values: Any = None

    def _logprobs(self) -> Any:  # noqa: ANN401
        if self._values is None:
            self._values = self._torch.log_softmax(self._logits.float(), dim=-1)
        return self._values

    def of(self, token: int) -> float:
        """Return the log probability of a token."""
        return float(self._logprobs()[token])

    def top(self, count: int) -> list[tuple[int, float]]:
        """Return the likeliest tokens; between equals the lowest id is first, as argmax has it."""
        values, ids = self._torch.topk(self._logprobs(), count)
        found = zip(ids.tolist(), values.tolist(), strict=True)
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def every(self) -> list[float]:
        """Return all log probabilities."""
        values: list[float] = self._logprobs().tolist()
        return values


class Eager:
    """A loaded model; :func:`load` makes it."""

    def __init__(self, torch: Any, tokenizer: Any, model: Any, name: str, about: Mapping[str, str]) -> None:  # noqa: ANN401
        self._torch, self._tokenizer, self._model = torch, tokenizer, model
        self.name, self.about = name, dict(about)
        # Version 5 of Transformers renames it.
        named = inspect.signature(model.forward).parameters
        self._cache = "cache" if "cache" in named else "past_key_values"
        config = model.config
        self.limit = int(getattr(config, "max_position_embeddings", None) or 2048)
        self.vocabulary = int(config.vocab_size)
        ends = getattr(model.generation_config, "eos_token_id", None) or tokenizer.eos_token_id
        self.ends: Collection[int] = frozenset(ends if isinstance(ends, list) else [ends]) - {None}

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a plain text, with the marks that the tokenizer adds."""
        return [int(token) for token in self._tokenizer(text)["input_ids"]]

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the tokens of a chat, by the tokenizer's own template."""
        errors = _module("jinja2").exceptions.TemplateError  # Transformers renders by it and lets its errors out
        try:
            text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except (errors, TypeError) as error:
            raise ValueError(str(error)) from error
        found = self._tokenizer(text, add_special_tokens=False)["input_ids"]  # the template has written the marks
        return [int(token) for token in found]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens without special ones."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def piece(self, token: int) -> str:
        """Return a token as text; SentencePiece's mark of a space is a space."""
        written = self._tokenizer.convert_ids_to_tokens(token)
        shown: str = self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        return f" {shown.lstrip()}" if isinstance(written, str) and written.startswith("\u2581") else shown

    def read(self, ids: Sequence[int], state: object, *, every: bool = False) -> tuple[list[Distribution], object]:
        """Read tokens and return distributions, the last one or every one, and the cache."""
        torch = self._torch
        with torch.inference_mode():
            given = torch.tensor([list(ids)], device=self._model.device)
            keep = {} if every else {"logits_to_keep": 1}
            out = self._model(input_ids=given, use_cache=True, **{self._cache: state}, **keep)
            rows: list[Distribution] = [_Row(torch, logits) for logits in out.logits[0]]
        return rows, getattr(out, self._cache)


def load(folder: Path, *, device: str = "cpu", dtype: str = "bfloat16", name: str | None = None) -> Eager:
    """Load a model from a folder on this machine; nothing is fetched.

    Raises ``UsageError`` where a library is missing, or the folder, device or dtype cannot be used.
    """
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} is no model folder of Transformers: it holds no config.json")
    torch, transformers = _module("torch"), _module("transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="eager", local_files_only=True
        )
        model = model.to(device).eval()
    except (OSError, RuntimeError, ValueError, KeyError, ImportError) as error:
        raise UsageError(f"cannot load {folder} as {dtype} on {device}: {error}") from error
    quantization = getattr(model.config, "quantization_config", None)
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    about = {
        "version": str(transformers.__version__),
        "torch": str(torch.__version__),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "attention": "eager",
        "quantization": str(method or getattr(quantization, "quant_method", None) or "none"),
    }
    return Eager(torch, tokenizer, model, name or folder.resolve().name, about)
