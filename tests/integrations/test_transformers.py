"""Models of transformers with kernels for the CPU, beside their own layers."""

import copy
import importlib

import kernels
import pytest
import torch
import transformers
from torch import nn

import planish
from planish.integrations import transformers as ours

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
QWEN3_NEXT = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}
TOKENS = torch.arange(24).reshape(2, 12) * 7 % 50


@pytest.fixture(autouse=True)
def mapping():
    """Registers the layers for one test."""
    with kernels.use_kernel_mapping({}):
        ours.register()
        yield


def draw(model):
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def replaced(model):
    """The classes of the layers that run a kernel, with their numbers."""
    counts = {}
    for module in model.modules():
        function = getattr(module.forward, "__func__", None)
        for layer in ours.LAYERS.values():
            if function is layer.forward:
                counts[layer.__name__] = counts.get(layer.__name__, 0) + 1
    return counts


MODELS = {
    "Llama": (transformers.LlamaConfig, {}, {"RMSNorm": 5}),
    "Qwen3": (transformers.Qwen3Config, {}, {"RMSNorm": 9}),
    "Mistral": (transformers.MistralConfig, {}, {"RMSNorm": 5}),
    "Qwen3-Next": (transformers.Qwen3NextConfig, QWEN3_NEXT, {"RMSNormGated": 1}),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [False, True])
def test_logits_and_gradients_are_those_of_the_model(name, training):
    kind, more, counts = MODELS[name]
    model = draw(transformers.AutoModelForCausalLM.from_config(kind(**SIZES, **more))).train(training)
    kernelized = copy.deepcopy(model)
    kernelized.set_use_kernels(True)
    assert replaced(kernelized) == counts
    results = []
    for one in (model, kernelized):
        logits = one(TOKENS).logits
        logits.sin().sum().backward()
        results.append([logits, *(p.grad for p in one.parameters() if p.grad is not None)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # sums of float in other orders


def test_bfloat16():
    model = draw(transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SIZES))).bfloat16().eval()
    kernelized = copy.deepcopy(model)
    kernelized.set_use_kernels(True)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(TOKENS).logits
        errors = [(one(TOKENS).logits.double() - exact).abs().mean() for one in (model, kernelized)]
    assert errors[1] < 1.1 * errors[0]  # one rounding less in each norm


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gates(activation):
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

    norm = draw(Qwen3NextRMSNormGated(16))
    norm.activation = activation
    x, gate = torch.randn(3, 16), torch.randn(3, 16)
    expected = norm(x, gate)
    kernels.kernelize(norm, mode=kernels.Mode.INFERENCE, device="cpu")
    torch.testing.assert_close(norm(x, gate), expected)


def test_a_gate_of_another_function_runs_in_the_model():
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

    norm = draw(Qwen3NextRMSNormGated(16))
    norm.activation = "gelu"
    x, gate = torch.randn(3, 16), torch.randn(3, 16)
    expected = norm(x, gate)
    kernels.kernelize(norm, mode=kernels.Mode.INFERENCE, device="cpu")
    assert torch.equal(norm(x, gate), expected)


@pytest.mark.parametrize("name", ["llama.modeling_llama.LlamaRMSNorm", "olmo2.modeling_olmo2.Olmo2RMSNorm"])
def test_float_weights_and_bfloat16_inputs_give_the_type_of_the_model(name):
    module, name = name.rsplit(".", 1)
    norm = draw(getattr(importlib.import_module(f"transformers.models.{module}"), name)(16))
    x = torch.randn(3, 16).bfloat16()
    expected = norm(x)
    kernels.kernelize(norm, mode=kernels.Mode.INFERENCE, device="cpu")
    found = norm(x)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected)


@pytest.fixture
def layer_norms(monkeypatch):
    for name in ("kernel_layer_name", "kernel_condition"):
        monkeypatch.setattr(nn.LayerNorm, name, None, raising=False)  # restored after the test
    ours.register(layer_norm=True)


@pytest.mark.usefixtures("layer_norms")
def test_layer_norm_is_replaced_if_asked():
    config = transformers.GPT2Config(vocab_size=50, n_positions=64, n_embd=16, n_layer=2, n_head=2)
    model = draw(transformers.GPT2LMHeadModel(config)).eval()
    kernelized = copy.deepcopy(model)
    kernelized.set_use_kernels(True)
    assert replaced(kernelized) == {"LayerNorm": 5}
    torch.testing.assert_close(kernelized(TOKENS).logits, model(TOKENS).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("layer_norms")
def test_classes_with_another_forward_stay():
    model = draw(transformers.AutoModelForCausalLM.from_config(transformers.NemotronConfig(**SIZES))).eval()
    kernelized = copy.deepcopy(model)
    kernelized.set_use_kernels(True)
    assert replaced(kernelized) == {}
    norm = planish.nn.LayerNorm(5, weight_offset=1)
    assert replaced(kernels.kernelize(nn.Sequential(norm), mode=kernels.Mode.INFERENCE, device="cpu")) == {}
