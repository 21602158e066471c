"""Unpacks a GGUF file into the folder that PyTorch engines read; runs in an engine's own environment.

    python unpack_model.py IN.gguf OUT

Needs torch, transformers and gguf. The weights are de-quantized to bfloat16, so they hold what the GGUF file holds.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

source, target = map(Path, sys.argv[1:])
beside = target.with_name(target.name + ".part")
shutil.rmtree(beside, ignore_errors=True)
model = AutoModelForCausalLM.from_pretrained(
    source.parent,
    gguf_file=source.name,
    dtype=torch.bfloat16,
    quantization_config=GgufConfig(gguf_file=source.name, dequantize=True),
)
model.save_pretrained(beside)
AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(beside)
beside.replace(target)  # whole or not there: a second setup must not find half a model
