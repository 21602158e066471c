"""The table of formats of weights per TPU stack, and the warnings made of it."""

from __future__ import annotations

import pytest

from servecheck import features, formats
from servecheck.formats import Precision
from servecheck.lint import lint
from servecheck.model import Endpoint, Fingerprint, How, Known
from servecheck.stacks import STACKS, named, repositories


def known(**fields: str) -> Fingerprint:
    return Fingerprint(fields={name: Known(value=value, how=How.DECLARED) for name, value in fields.items()})


def test_the_table_is_right_and_speaks_of_every_stack_that_we_know():
    assert lint([*formats.builtin()], probes={}, features=features.BY_ID) == []
    assert set(formats.table().stacks) == {stack.id for stack in STACKS}


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("GPTQ", "gptq"),
        ("gptq_marlin", "gptq"),
        ("gptq-int4", "gptq"),
        ("bnb", "bitsandbytes"),
        ("Q4_1", "gguf"),
        ("iq2_xs", "gguf"),
        ("compressed-tensors", "compressed-tensors"),
        ("auto_awq", "awq"),
        ("modelopt_fp4", "nvfp4"),
        ("bf16", "unquantized"),
        ("float16", "floats"),
        ("w8a8", "integers"),
        ("something", None),
    ],
)
def test_a_format_goes_by_many_names(name, format_):
    assert format_ == formats.of(name)


@pytest.mark.parametrize(
    ("precision", "stack", "said"),
    [
        ("gptq", "tpu-inference", "is not among the formats that vLLM on TPU by tpu-inference loads"),
        ("gguf", "torchtpu", "is not among the formats that vLLM on TPU by TorchTPU loads"),
        ("bitsandbytes", "sgl-jax", "is not among the formats that SGLang on TPU by SGL-JAX loads"),
        ("fp8", "tpu-inference", "v6e has no product in fp8"),
        ("float16", "torchtpu", "they become bfloat16"),
        ("int8", "tpu-inference", "may be one of several formats"),
        ("exl3", "tpu-inference", "is no format that this table knows"),
        ("awq", "sglang-torchtpu", "nothing is known of its formats"),
        ("compressed-tensors", "tpu-inference", None),
        ("bf16", "tpu-inference", None),
        ("bf16", "sglang-torchtpu", None),
    ],
)
def test_a_format_that_a_stack_does_not_load_is_warned_of_with_day_and_source(precision, stack, said):
    found = formats.warning(Precision(name=precision, source="x"), next(one for one in STACKS if one.id == stack))
    assert (found is None) is (said is None)
    if said is not None and found is not None:
        assert said in found
        assert "as of 2026-" in found
        assert "https://github.com/" in found


@pytest.mark.parametrize(
    ("declared", "model", "said"),
    [
        ({"tpu_stack": "tpu-inference", "quantization": "GPTQ"}, None, "gptq (declared by the user) is not among"),
        ({"tpu_stack": "torchtpu"}, "acme/Model-7B-GGUF", "gguf (the model's name, which proves nothing) is not"),
        ({"tpu_stack": "tpu-inference", "quantization": "bf16"}, "Model-GPTQ", None),
        ({"tpu_stack": "something else", "quantization": "gptq"}, None, None),
        ({"quantization": "gptq"}, None, None),
        ({"tpu_stack": "tpu-inference"}, "acme/Model-7B", None),
    ],
)
def test_before_anything_is_sent_what_is_declared_speaks_and_then_the_models_name(declared, model, said):
    endpoint = Endpoint(name="tpu", base_url="http://x.example/v1", model=model, declared=declared)
    found = [*formats.before(endpoint)]
    assert len(found) == (said is not None)
    assert all(str(said) in line and line.startswith("tpu: ") for line in found)


def test_a_fingerprint_is_warned_of_in_the_report():
    (said,) = formats.seen("tpu", known(engine="vllm", tpu_stack="tpu-inference", quantization="gptq"))
    assert said.startswith("tpu: gptq (declared) is not among the formats")
    assert [*formats.seen("gpu", known(engine="vllm", device="cuda", quantization="gptq"))] == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"quantization_config": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "bfloat16", "quantization_config": None}, "bfloat16"),
        ({}, None),
    ],
)
def test_a_config_says_how_weights_are_kept(config, expected):
    found = formats.in_config(config)
    assert expected == (found.name if found else None)


@pytest.mark.parametrize(
    ("name", "engine", "stack"),
    [
        ("TorchTPU", None, "torchtpu"),
        ("vllm-torchtpu", "vllm", "torchtpu"),
        ("TorchTPU", "sglang", "sglang-torchtpu"),
        ("sglang-jax", None, "sgl-jax"),
        ("vllm-tpu", None, "tpu-inference"),
        ("cuda", None, None),
    ],
)
def test_a_stack_goes_by_many_names_and_torchtpu_is_one_of_two(name, engine, stack):
    found = named(name, engine)
    assert stack == (found.id if found else None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"engine": "vllm"},
            [
                *("vllm-project/vllm", "vllm-project/tpu-inference", "vllm-project/vllm-torchtpu"),
                "google-pytorch/torch_tpu",
            ],
        ),
        ({"engine": "vllm", "device": "cuda"}, ["vllm-project/vllm"]),
        ({"engine": "vllm", "tpu_stack": "tpu-inference"}, ["vllm-project/vllm", "vllm-project/tpu-inference"]),
        (
            {"engine": "sglang", "tpu_stack": "torchtpu"},
            ["sgl-project/sglang", "sgl-project/sglang-torchtpu", "google-pytorch/torch_tpu"],
        ),
        ({"engine": "llama.cpp", "device": "cpu", "gateway": "litellm"}, ["ggml-org/llama.cpp", "BerriAI/litellm"]),
    ],
)
def test_the_trackers_are_those_of_the_engine_and_of_its_stacks(fields, expected):
    assert expected == [*repositories([known(**fields)])]


def test_where_nothing_is_known_the_tpu_trackers_are_asked_torchtpus_among_them():
    found = repositories([known()])
    assert {"vllm-project/vllm-torchtpu", "google-pytorch/torch_tpu", "vllm-project/tpu-inference"} <= {*found}


@pytest.mark.parametrize(
    ("stack", "precision", "said"),
    [
        ("torchtpu", "awq", "awq (x) is among the formats that vLLM on TPU by TorchTPU loads (a public fork"),
        ("torchtpu", "gptq", "is not among the formats that vLLM on TPU by TorchTPU loads"),
        ("sglang-torchtpu", "bf16", "nothing is known of this format on sglang-torchtpu"),
    ],
)
def test_who_asks_about_a_format_is_always_told_something(stack, precision, said):
    assert said in formats.known_of(
        Precision(name=precision, source="x"), next(one for one in STACKS if one.id == stack)
    )
