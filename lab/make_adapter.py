"""Makes a LoRA adapter of random numbers for the lab's model, in PEFT's format; runs in an engine's own environment.

    python make_adapter.py MODEL OUT [SCALE]

Needs torch and safetensors. With a scale of 0 it is an adapter that changes nothing, which a check should notice.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

_RANK = 8

model, target = map(Path, sys.argv[1:3])
scale = float(sys.argv[3]) if len(sys.argv) > 3 else 0.05
config = json.loads((model / "config.json").read_text())
hidden, heads = config["hidden_size"], config["num_attention_heads"]
outputs = {"q_proj": hidden, "v_proj": hidden // heads * config.get("num_key_value_heads", heads)}
torch.manual_seed(1)
weights = {}
for layer in range(config["num_hidden_layers"]):
    for module, width in outputs.items():
        name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
        weights[f"{name}.lora_A.weight"] = torch.randn(_RANK, hidden) * scale
        weights[f"{name}.lora_B.weight"] = torch.randn(width, _RANK) * scale
target.mkdir(parents=True, exist_ok=True)
save_file(weights, target / "adapter_model.safetensors")
about = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": _RANK, "lora_alpha": 16, "bias": "none"}
about |= {"target_modules": list(outputs), "lora_dropout": 0.0, "base_model_name_or_path": "smollm2"}
(target / "adapter_config.json").write_text(json.dumps(about))
