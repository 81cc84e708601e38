"""planish.export: programs in PyTorch's operators, and ONNX programs, beside the modules."""

import io

import onnxruntime
import pytest
import torch
from torch import nn

import planish
import planish.functional as PF

# Sums of float in other orders; a recurrent layer adds up those of its steps.
TOLERANCES = {"rtol": 1e-4, "atol": 1e-5}
LSTMS = "paper haste fastrnns tfa contrib torchaudio tflite draw slstm plain batchnorm"
CELLS = [
    *(("LayerNormLSTM", variant) for variant in LSTMS.split()),
    *(("LayerNormGRU", variant) for variant in ("paper", "haste", "dreamer", "plain", "batchnorm")),
    *(("LayerNormRNN", variant) for variant in ("paper", "plain", "batchnorm")),
]
# Layers with heads, or with a projection.
RECURRENCES = [
    *(("LayerNormLSTM", variant, {"num_heads": 3}) for variant in ("paper", "plain", "slstm")),
    *(("LayerNormGRU", variant, {"num_heads": 2}) for variant in ("paper", "dreamer", "plain")),
    ("LayerNormRNN", "paper", {"num_heads": 6}),
    *(("LayerNormLSTM", variant, {"proj_size": 4}) for variant in ("paper", "plain", "slstm")),
]
NORMS = {
    "LayerNorm": lambda: planish.nn.LayerNorm(6),
    "LayerNorm without parameters": lambda: planish.nn.LayerNorm(6, elementwise_affine=False),
    "LayerNorm of 1 + weight": lambda: planish.nn.LayerNorm(6, weight_offset=1),
    "LayerNorm of two dimensions": lambda: planish.nn.LayerNorm((4, 6)),
    "RMSNorm": lambda: planish.nn.RMSNorm(6),
    "RMSNorm of 1 + weight": lambda: planish.nn.RMSNorm(6, weight_offset=1),
    "LayerNormSimple": lambda: planish.nn.LayerNormSimple(6),
    "DetachNorm": lambda: planish.nn.DetachNorm(6),
    "AdaNorm": lambda: planish.nn.AdaNorm(6),
    "AdaNorm as coded": lambda: planish.nn.RowNorm(6, "ada_as_coded"),
    "LayerNorm1d": lambda: planish.nn.LayerNorm1d(4),
    "BatchNorm1d": lambda: planish.nn.BatchNorm1d(4),
    "BatchNorm1d without statistics": lambda: planish.nn.BatchNorm1d(4, track_running_stats=False),
    "GroupNorm": lambda: planish.nn.GroupNorm(2, 4),
    "GroupNorm without parameters": lambda: planish.nn.GroupNorm(2, 4, affine=False),
    "InstanceNorm1d": lambda: planish.nn.InstanceNorm1d(4, affine=True),
    "InstanceNorm1d with statistics": lambda: planish.nn.InstanceNorm1d(4, track_running_stats=True),
    "DyT": lambda: planish.nn.DyT(6),
    "Derf": lambda: planish.nn.Derf((4, 6)),
    "OnlineLayerNorm": lambda: planish.nn.OnlineLayerNorm(6),
    "OnlineLayerNorm with warm-up": lambda: planish.nn.OnlineLayerNorm(6, schedule="warmup"),
    "weight_norm": lambda: planish.nn.weight_norm(nn.Linear(6, 3)),
}


class Flat(nn.Module):
    """Calls a module, and returns a tuple of its results."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        results = self.module(x)
        if isinstance(results, torch.Tensor):
            return (results,)
        y, states = results
        return y, *(states if isinstance(states, tuple) else (states,))


def draw(module):
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    for name, buffer in module.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
        elif name.endswith("running_mean"):
            buffer.normal_()
    return module


def run_onnx(program, arguments):
    file = io.BytesIO()
    torch.onnx.export(program, arguments, dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    inputs = {name: t.numpy() for name, t in zip(names, arguments, strict=True)}
    return [torch.from_numpy(result) for result in session.run(None, inputs)]


def check(module, arguments, more=(), dynamic_shapes=None):
    """Compares a module with its exported programs, for `arguments` and further ones."""
    module = draw(module).eval()
    with torch.no_grad():
        program = planish.export.decompose(torch.export.export(module, arguments, dynamic_shapes=dynamic_shapes))
        assert not [node for node in program.graph.nodes if "planish" in str(node.target)]
        for given in (arguments, *more):
            expected = module(*given)
            for found in (program.module()(*given), run_onnx(program, given)):
                for a, b in zip(found, expected, strict=True):
                    torch.testing.assert_close(a, b, **TOLERANCES)


@pytest.mark.parametrize("name", NORMS)
def test_norms(name):
    module = NORMS[name]()
    x = torch.randn(3, 4, 6)
    rows = torch.export.Dim("rows", min=2)
    # 100 + x: the mean is large
    check(Flat(module), (x,), [(torch.randn(5, 4, 6),), (100 + x,)], dynamic_shapes={"x": {0: rows}})


def test_sums_with_a_residual():
    class Sum(nn.Module):
        def forward(self, x, residual):
            return *PF.add_layer_norm(x, residual, [6]), *PF.add_rms_norm(x, residual, [6])

    check(Sum(), (torch.randn(3, 6), torch.randn(3, 6)))


def test_outputs_in_int8():
    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = planish.nn.LayerNorm(6)

        def forward(self, x, z):
            return *self.norm.quantized(x, z), *PF.add_quantized_rms_norm(x, z, [6])

    module = draw(Quantized())
    x = torch.randn(3, 6)
    x[1] = 2  # after the norm zeros
    given = (x, torch.randn(3, 6))
    with torch.no_grad():
        program = planish.export.decompose(torch.export.export(module, given))
        for found in (program.module()(*given), run_onnx(program, given)):
            for a, b in zip(found, module(*given), strict=True):
                # Roundings of float can move a value across a tie of int8.
                torch.testing.assert_close(a.float(), b.float(), **(TOLERANCES | {"atol": 1.0 * (b.dtype == torch.int8)}))


@pytest.mark.parametrize("kind, variant, options", [*((*cell, {}) for cell in CELLS), *RECURRENCES])
def test_recurrent_layers(kind, variant, options):
    module = getattr(planish.nn, kind)(5, 6, num_layers=2, bidirectional=True, variant=variant, **options)
    time, batch = torch.export.Dim("time", min=2), torch.export.Dim("batch", min=2)
    check(
        Flat(module),
        (torch.randn(4, 3, 5),),
        [(torch.randn(7, 2, 5),)],
        dynamic_shapes={"x": {0: time, 1: batch}},
    )


DEFAULTS = [(kind, "paper", {}) for kind in ("LayerNormLSTM", "LayerNormGRU", "LayerNormRNN")]


def states_of(module, *sizes):
    """Returns random states h and, of an LSTM, c."""
    widths = [module.proj_size or module.hidden_size]
    if "LSTM" in type(module).__name__:
        widths.append(module.hidden_size * (2 if module.variant == "slstm" else 1))
    return [torch.randn(*sizes, width) for width in widths]


@pytest.mark.parametrize("kind, variant, options", [*DEFAULTS, ("LayerNormLSTM", "slstm", {}), *RECURRENCES])
def test_states_resets_and_lengths(kind, variant, options):
    module = getattr(planish.nn, kind)(5, 6, batch_first=True, variant=variant, **options)
    states = states_of(module, 1, 3)
    hx = tuple(states) if len(states) > 1 else states[0]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = module

        def forward(self, x, resets, lengths):
            y, states = self.rnn(x, hx, resets=resets, lengths=lengths)
            return y, *(states if isinstance(states, tuple) else (states,))

    x = torch.randn(3, 8, 5)
    resets = torch.rand(3, 8) < 0.3
    check(Layer(), (x, resets, torch.tensor([8, 3, 5])), [(x, ~resets, torch.tensor([1, 8, 8]))])


@pytest.mark.parametrize("kind, variant, options", [*DEFAULTS, ("LayerNormLSTM", "slstm", {}), *RECURRENCES])
def test_cells(kind, variant, options):
    module = getattr(planish.nn, f"{kind}Cell")(5, 6, variant=variant, **options)

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = module

        def forward(self, x, *states):
            results = self.cell(x, states if len(states) > 1 else states[0])
            return results if len(states) > 1 else (results,)

    check(Cell(), (torch.randn(3, 5), *states_of(module, 3)))


def test_a_cell_of_an_empty_slstm():
    check(Flat(planish.nn.LayerNormLSTMCell(5, 6, variant="slstm")), (torch.randn(3, 5),))


def test_sixteen_bits():
    module = draw(nn.Sequential(planish.nn.RMSNorm(5), planish.nn.LayerNorm(5))).bfloat16().eval()
    x = torch.randn(4, 5).bfloat16()
    program = planish.export.decompose(torch.export.export(module, (x,)))
    torch.testing.assert_close(program.module()(x), module(x))
    lstm = draw(planish.nn.LayerNormLSTM(5, 6)).bfloat16().eval()
    x = torch.randn(9, 2, 5).bfloat16()
    program = planish.export.decompose(torch.export.export(lstm, (x,)))
    torch.testing.assert_close(program.module()(x)[0], lstm(x)[0])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = planish.nn.RMSNorm(6)
        self.rnn = planish.nn.LayerNormGRU(6, 7, batch_first=True, variant="dreamer")
        self.out = nn.Sequential(planish.nn.LayerNorm(7), nn.Linear(7, 3))

    def forward(self, x):
        return (self.out(self.rnn(self.norm(x))[0]),)


def test_a_model():
    check(Tagger(), (torch.randn(2, 5, 6),))


def test_gradients_need_not_be_disabled():
    model, x = Flat(planish.nn.LayerNormLSTM(5, 6)).eval(), torch.randn(4, 2, 5)
    program = planish.export.decompose(torch.export.export(model, (x,)))
    assert all(p.requires_grad for p in model.parameters())
    for a, b in zip(run_onnx(program, (x,)), model(x), strict=True):
        torch.testing.assert_close(a, b.detach(), **TOLERANCES)


class Twice(nn.Module):
    """A layer with one tensor in several roles."""

    def __init__(self, role):
        super().__init__()
        self.role = role
        self.rnn = planish.nn.LayerNormLSTM(6, 6)
        if role == "weights":
            self.rnn.weight_hh_l0 = self.rnn.weight_ih_l0

    def forward(self, x):
        z = x.new_zeros(1, x.shape[1], 6)
        resets = torch.ones_like(x[..., 0])
        arguments = {
            "states": {"hx": (z, z)},
            "input": {"hx": (x[:1], x[:1])},
            "resets": {"resets": resets, "h_reset": z[:, 0], "c_reset": z[:, 0]},
            "weights": {},
        }[self.role]
        y, (h, c) = self.rnn(x, **arguments)
        return y, h, c


@pytest.mark.parametrize("role", ["states", "input", "resets", "weights"])
def test_one_tensor_in_several_roles(role):
    check(Twice(role), (torch.randn(4, 2, 6),))


def test_a_module_is_no_program():
    with pytest.raises(TypeError, match=r"program must be a torch.export.ExportedProgram, got Linear"):
        planish.export.decompose(nn.Linear(2, 2))


@pytest.mark.parametrize(
    "make",
    [
        Tagger,
        lambda: Flat(planish.nn.LayerNormLSTM(6, 8, variant="slstm", num_heads=2)),
        lambda: Flat(planish.nn.LayerNormLSTM(6, 8, num_heads=2)),
        lambda: Flat(planish.nn.LayerNormGRU(6, 8, variant="plain", num_heads=2)),
        lambda: Flat(planish.nn.LayerNormLSTM(6, 8, proj_size=5)),
    ],
    ids=["model", "sLSTM", "LSTM with heads", "GRU with heads", "LSTM with a projection"],
)
def test_aot_inductor(make, tmp_path):
    model, x = draw(make()).eval(), torch.randn(2, 5, 6)
    with torch.no_grad():
        program = planish.export.decompose(torch.export.export(model, (x,)))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
        found = torch._inductor.aoti_load_package(package)(x)
        for a, b in zip(found, model(x), strict=True):
            torch.testing.assert_close(a, b, **TOLERANCES)
