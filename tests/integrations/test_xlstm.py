"""The sLSTM beside that of the xlstm package, whose backend `vanilla` is written in PyTorch's operators."""

import pytest
import torch
from torch.func import functional_call
from xlstm.blocks.slstm.cell import sLSTMCell, sLSTMCellConfig

import planish

INPUTS, HIDDEN, BATCH, STEPS = 5, 12, 3, 20
HEADS = (1, 2, 4)
# Relative to the largest element. An element of a gradient is a sum over steps of products, each with the rounding of
# the steps after it. xlstm's states are divided by a stabilizer, ours are not.
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-13}


def our_layer(heads, dtype):
    layer = planish.nn.LayerNormLSTM(INPUTS, HIDDEN, variant="slstm", num_heads=heads, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()  # some gates saturate
    return layer


class Theirs:
    """xlstm's cell with the parameters of our layer, which therefore get its gradients."""

    def __init__(self, ours):
        config = sLSTMCellConfig(
            hidden_size=HIDDEN, num_heads=ours.num_heads, backend="vanilla", dtype="float32", input_shape="SBGNH",
            output_shape="SBH")  # fmt: skip
        self.cell = sLSTMCell(config)
        # The rows of a head are together there.
        kernel = ours.weight_hh_l0.unflatten(0, (4, ours.num_heads, -1)).transpose(0, 1).flatten(1, 2)
        self.parameters = {"_bias_": ours.bias_ih_l0, "_recurrent_kernel_": kernel}
        self.weight_ih = ours.weight_ih_l0

    def steps(self, x, states):
        return functional_call(self.cell, self.parameters, (x @ self.weight_ih.t(), states))

    def sequence(self, x, states, resets=None):
        """Returns y [T, B, H] and the states after the last step. A reset empties the states before a step."""
        if resets is None:
            return self.steps(x, states)
        outputs = []
        for step, reset in zip(x.split(1), resets, strict=True):
            if states is not None:
                states = states.masked_fill(reset.unsqueeze(-1), 0)
            y, states = self.steps(step, states)
            outputs.append(y)
        return torch.cat(outputs), states


def to_xlstm(h, c):
    """Returns h [B, H] and c [B, 2H] as xlstm's y, c, n, m: its c and n are divided by exp(m), for any m."""
    c, log_n = c.chunk(2, -1)
    m = log_n.detach() + torch.randn_like(log_n)
    n = (log_n - m).exp()
    return torch.stack([h, c * n, n, m])


def from_xlstm(states):
    y, c, n, m = states
    return y, torch.cat([c / n, n.log() + m], -1)


def assert_close(found, expected):
    atol = TOLERANCES[expected.dtype] * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", ["empty", "state", "resets", "state and resets"])
@pytest.mark.parametrize("heads", HEADS)
def test_sequences_and_gradients(heads, case, dtype):
    ours = our_layer(heads, dtype)
    x = torch.randn(STEPS, BATCH, INPUTS, dtype=dtype, requires_grad=True)
    given, state, resets = [], None, None
    if "state" in case:
        given = [torch.randn(BATCH, width, dtype=dtype, requires_grad=True) for width in (HIDDEN, 2 * HIDDEN)]
        state = tuple(t.unsqueeze(0) for t in given)
    if "resets" in case:
        resets = torch.rand(STEPS, BATCH) < 0.2
        resets[0, 0] = False
        resets[4] = True  # all sequences at once
    y, (h_n, c_n) = ours(x, state, resets=resets)
    their_y, last = Theirs(ours).sequence(x, to_xlstm(*given) if given else None, resets)
    found, expected = (y, h_n[0], c_n[0]), (their_y, *from_xlstm(last))
    leaves = [x, *given, *ours.parameters()]
    weights = [torch.randn_like(t) for t in found]
    gradients = [torch.autograd.grad(results, leaves, weights) for results in (found, expected)]
    for a, b in zip((*found, *gradients[0]), (*expected, *gradients[1]), strict=True):
        assert_close(a, b)
        assert b.abs().max() > 1e-2


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("heads", HEADS)
def test_steps(heads, packed, dtype):
    ours = our_layer(heads, dtype)
    cell = planish.nn.LayerNormLSTMCell(INPUTS, HIDDEN, variant="slstm", num_heads=heads, dtype=dtype)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in ours.state_dict().items()})
    step = cell.steps() if packed else cell
    x = torch.randn(STEPS, BATCH, INPUTS, dtype=dtype, requires_grad=True)
    theirs, states, state = Theirs(ours), None, None
    found, expected = [], []
    for t in range(STEPS):
        y, states = theirs.steps(x[t : t + 1], states)
        state = step(x[t], state)
        for a, b in zip((state[0], *state), (y[0], *from_xlstm(states)), strict=True):
            assert_close(a, b)
        found.append(state[0])
        expected.append(y[0])
    weights = torch.randn(STEPS, BATCH, HIDDEN, dtype=dtype)
    gradients = [
        torch.autograd.grad(torch.stack(hs), [x, *module.parameters()], weights)
        for hs, module in ((found, cell), (expected, ours))
    ]
    for a, b in zip(*gradients, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("scale", [30, 1000])
def test_large_gates(scale):
    # exp(30) is far from the largest float, exp(1000) beyond it.
    ours = our_layer(2, torch.float32)
    x = scale * torch.randn(STEPS, BATCH, INPUTS)
    with torch.no_grad():
        y, (_, c_n) = ours(x)
        their_y, last = Theirs(ours).sequence(x, None)
        assert y.isfinite().all()
        # The preactivations' rounding is a factor of exp(i).
        atol = 1e-6 * scale
        torch.testing.assert_close(y, their_y, rtol=0, atol=atol)
        torch.testing.assert_close(c_n[0], from_xlstm(last)[1], rtol=1e-5, atol=atol)
