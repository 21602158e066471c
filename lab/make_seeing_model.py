"""Puts a small random eye before the lab's model, in LLaVA's format; runs in an engine's own environment.

    python make_seeing_model.py MODEL OUT

Needs torch, transformers and Pillow. What it says of a picture means nothing, but another picture makes it say
something else, and that is all a check of the server asks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

_IMAGE = "<repo_name>"  # a special token that the model has and nobody writes
_SIDE, _PATCH = 224, 28
_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}{{ '" + _IMAGE + "' }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

source, target = map(Path, sys.argv[1:])
tokenizer = AutoTokenizer.from_pretrained(source)
eye = CLIPVisionConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    image_size=_SIDE,
    patch_size=_PATCH,
    projection_dim=64,
)
config = LlavaConfig(
    vision_config=eye,
    text_config=AutoConfig.from_pretrained(source),
    image_token_index=tokenizer.convert_tokens_to_ids(_IMAGE),
    vision_feature_layer=-1,
    vision_feature_select_strategy="default",
)
torch.manual_seed(3)
model = LlavaForConditionalGeneration(config).to(torch.bfloat16)
known = {}
for file in source.glob("*.safetensors"):
    for name, tensor in load_file(file).items():
        known["model.language_model." + name.removeprefix("model.")] = tensor
model.load_state_dict(known, strict=False)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "multi_modal_projector" in name and parameter.dim() == 2:
            parameter.mul_(3)  # else a picture is too faint to change a word
model.save_pretrained(target)
tokenizer.save_pretrained(target)
# vLLM 0.32 looks for the tower under the name that it had before transformers 5.
weights = load_file(target / "model.safetensors")
renamed = {
    name.replace("vision_tower.", "vision_tower.vision_model.", 1) if "vision_model" not in name else name: tensor
    for name, tensor in weights.items()
}
save_file(renamed, target / "model.safetensors", metadata={"format": "pt"})
processor = {
    "processor_class": "LlavaProcessor",
    "image_token": _IMAGE,
    "patch_size": _PATCH,
    "vision_feature_select_strategy": "default",
    "num_additional_image_tokens": 1,
}
pictures = {
    "image_processor_type": "CLIPImageProcessor",
    "processor_class": "LlavaProcessor",
    "size": {"shortest_edge": _SIDE},
    "crop_size": {"height": _SIDE, "width": _SIDE},
}
(target / "processor_config.json").write_text(json.dumps(processor))
(target / "preprocessor_config.json").write_text(json.dumps(pictures))
(target / "chat_template.jinja").write_text(_TEMPLATE)
