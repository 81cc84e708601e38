"""The recurrent operators, torch.ops.planish.rnn_*, in PyTorch's machinery.

Derivatives are compared with finite differences and, for the plain cells, with torch.nn's modules.
torch/rnn/rnn_test.cc compares results with the equations.
"""

import io

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import planish  # noqa: F401  (registers the operators)


class OfLayers:
    """An operator, called with the names of CELLS."""

    def __init__(self, operator):
        self.operator, self.default = operator, operator.default

    def __call__(self, cell, *arguments, **options):
        return self.operator(cell_of(cell), *arguments, **options)


def cell_of(name):
    return name.split()[0] if isinstance(name, str) else name


rnn_forward = OfLayers(torch.ops.planish.rnn_forward)
rnn_backward = torch.ops.planish.rnn_backward
rnn_step = OfLayers(torch.ops.planish.rnn_step)
rnn_pack = OfLayers(torch.ops.planish.rnn_pack)

# Warnings of vmap, which calls the operators one by one, and of functional.py's own scripts.
pytestmark = [
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
]

PARAMS = (
    "weight_ih weight_hh bias bias_hn ln_ih_weight ln_ih_bias ln_hh_weight ln_hh_bias "
    "ln_weight ln_bias ln_c_weight ln_c_bias"
).split()
DIFFERENTIABLE = ["x", *PARAMS, "h0", "c0", "h_reset", "c_reset", "weight_hr"]
SEPARATE_NORMS = "ln_ih_weight ln_ih_bias ln_hh_weight ln_hh_bias"
JOINT_NORM = "ln_weight ln_bias"
NORM_OF_C = "ln_c_weight ln_c_bias"
# The parameters of cells besides their weights, and of some layers with a projection or heads.
CELLS = {
    "rnn": "bias",
    "rnn_relu": "bias",
    "lstm": "bias",
    "gru": "bias bias_hn",
    "ln_rnn": JOINT_NORM,
    "ln_rnn_relu": JOINT_NORM,
    "ln_lstm": f"bias {SEPARATE_NORMS} {NORM_OF_C}",
    "ln_lstm_haste": f"bias ln_ih_weight ln_hh_weight {NORM_OF_C}",
    "ln_lstm_fastrnns": f"{SEPARATE_NORMS} {NORM_OF_C}",
    "ln_lstm_tfa": f"bias {SEPARATE_NORMS} {NORM_OF_C}",
    "ln_lstm_contrib": f"{JOINT_NORM} {NORM_OF_C}",
    "draw_lstm": f"bias {NORM_OF_C}",
    "ln_gru": SEPARATE_NORMS,
    "bn_rnn": JOINT_NORM,
    "bn_lstm": f"bias ln_ih_weight ln_hh_weight {NORM_OF_C}",
    "bn_gru": SEPARATE_NORMS,
    "ln_lstm_torchaudio": f"{JOINT_NORM} {NORM_OF_C}",
    "ln_lstm_tflite": "bias ln_weight",
    "ln_gru_haste": "bias bias_hn ln_ih_weight ln_hh_weight",
    "ln_gru_dreamer": JOINT_NORM,
    "slstm": "bias",
    "ln_lstm heads": f"bias {SEPARATE_NORMS} {NORM_OF_C}",
    "ln_gru heads": SEPARATE_NORMS,
    "rnn_relu heads": "bias",
    "lstm projected": "bias weight_hr",
    "ln_lstm projected": f"bias {SEPARATE_NORMS} {NORM_OF_C} weight_hr",
    "bn_lstm projected": f"bias ln_ih_weight ln_hh_weight {NORM_OF_C} weight_hr",
}
# Cells with every kind of arithmetic, place of norms and dimension of statistics.
SOME_CELLS = ["ln_lstm", "ln_gru", "ln_lstm_contrib", "ln_gru_dreamer", "bn_rnn"]
SOME_CELLS += ["ln_lstm projected", "ln_gru heads"]
# Both sides compute in double, in different order. Norms can amplify a rounding a thousandfold.
SAME = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(autouse=True)
def one_thread():
    """Uses one thread: the tensors are tiny, and waiting threads take time from others."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    yield
    torch.set_num_threads(threads)


def is_lstm(cell):
    return "lstm" in cell


def over_batch(cell):
    return cell.startswith("bn_")


def make_layer(
    cell, time=3, batch=2, inputs=2, hidden=3, *, states=True, lengths=False, resets=False,
    dtype=torch.double,
):  # fmt: skip
    """Returns random tensors of a layer by the names of the operators' arguments."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.double).to(dtype)

    gates = hidden * (4 if is_lstm(cell) else 3 if "gru" in cell else 1)
    layer = {"x": random(time, batch, inputs)}
    layer["weight_ih"] = 0.5 * random(gates, inputs)
    names = CELLS[cell].split()
    outputs = hidden - 1 if "weight_hr" in names else hidden
    heads = 3 if cell.endswith("heads") else 1
    layer["weight_hh"] = 0.5 * random(gates, outputs // heads)
    for name in names:
        if name == "weight_hr":
            layer[name] = random(outputs, hidden)
            continue
        size = hidden if name == "bias_hn" or name in NORM_OF_C.split() else gates
        layer[name] = name.endswith("_weight") + 0.4 * random(size)
    if states:
        layer["h0"] = random(batch, outputs)
    of_c = 2 * hidden if cell == "slstm" else hidden
    if states and is_lstm(cell):
        layer["c0"] = random(batch, of_c)
    if lengths:
        layer["lengths"] = torch.arange(batch) % time + 1
    if resets:
        layer["resets"] = torch.rand(time, batch, generator=generator) < 0.4
        layer["h_reset"] = random(outputs)
    if resets and is_lstm(cell):
        layer["c_reset"] = random(of_c)
    return layer


def step_of(layer):
    """Returns the first step of a layer."""
    step = {k: v for k, v in layer.items() if k in ["h0", "c0", *PARAMS, "weight_hr"]}
    return {"x": layer["x"][0], **step}


def split(layer):
    """Returns the names and tensors that have derivatives, and the other arguments."""
    names = [name for name in layer if layer[name].is_floating_point()]
    rest = {name: t for name, t in layer.items() if name not in names}
    return names, [layer[name] for name in names], rest


def function_of(cell, layer, operator=rnn_forward, **settings):
    """Returns the operator as a function of the tensors that have derivatives, and these tensors.

    A large eps makes the function smooth. With the usual eps, each derivative of a norm over three
    elements can be a hundred times larger than the derivative of one order less.
    """
    names, tensors, rest = split(layer)
    settings = {"eps": 0.1} | settings

    def function(*tensors):
        results = operator(cell, **dict(zip(names, tensors)), **rest, **settings)
        count = len(results) - (operator is rnn_forward)  # without saved
        return tuple(results[: count if is_lstm(cell) else count - 1])

    return function, tensors


def leaves_of(tensors):
    return [t.clone().requires_grad_() for t in tensors]


def loss_of(outputs):
    return sum(((i + 1) * output).square().sum() for i, output in enumerate(outputs))


def backward_arguments(cell, layer, requires_grad=False, **settings):
    """Returns the arguments of rnn_backward after a call of rnn_forward."""
    with torch.no_grad():
        y, h_n, c_n, saved = rnn_forward(cell, **layer, save=True, **settings)
    outputs = [y, h_n, c_n if is_lstm(cell) else None]
    outputs = [
        None if t is None else torch.randn_like(t).requires_grad_(requires_grad) for t in outputs
    ]
    mask = [name in layer and name != "bias" for name in DIFFERENTIABLE]
    return (*outputs, y, saved, cell_of(cell)), layer | settings | {"mask": mask}


def assert_all_close(ours, theirs, **tolerance):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, **(tolerance or SAME))


# ---- Derivatives

GIVEN = [{}, {"lengths": True, "resets": True, "reverse": True}]


@pytest.mark.parametrize("given", GIVEN, ids=["plain", "sequences"])
@pytest.mark.parametrize("cell", CELLS)
def test_derivatives_match_finite_differences(cell, given):
    given = dict(given)
    settings = {"reverse": given.pop("reverse", False)}
    # The norm over a batch of one sequence is constant: lengths are 1, 2, 1, 2.
    layer = make_layer(cell, 2 if given else 3, batch=4 if over_batch(cell) else 2, **given)
    function, tensors = function_of(cell, layer, **settings)
    leaves = leaves_of(tensors)
    # PyTorch's own tolerances: differences of 1e-6 in double are right to about 1e-9, and
    # derivatives are about 1. Fast mode checks a random direction, in a third of the time. Only
    # first derivatives of whole sequences are checked element by element.
    assert torch.autograd.gradcheck(
        function, leaves, fast_mode=bool(given), check_forward_ad=True, check_batched_grad=not given
    )
    assert torch.autograd.gradgradcheck(
        function, leaves, fast_mode=True, check_fwd_over_rev=True, check_batched_grad=not given
    )


@pytest.mark.parametrize("cell", SOME_CELLS)
def test_third_derivatives_match_finite_differences(cell):
    layer = make_layer(cell, time=2, batch=3)
    function, tensors = function_of(cell, layer)
    names, _, _ = split(layer)

    def second(*leaves):
        loss = loss_of(function(*leaves))
        for name in ["x", "weight_hh"]:
            by = leaves[names.index(name)]
            (derivative,) = torch.autograd.grad(loss, by, create_graph=True)
            loss = derivative.sin().sum()
        return loss

    assert torch.autograd.gradcheck(second, leaves_of(tensors))


@pytest.mark.parametrize("cell", [cell for cell in CELLS if not over_batch(cell)])
def test_steps_have_the_same_derivatives(cell):
    function, tensors = function_of(cell, step_of(make_layer(cell)), rnn_step)
    leaves = leaves_of(tensors)
    assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True, check_fwd_over_rev=True)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_second_derivatives_with_and_without_checkpoints(checkpoint):
    layer = make_layer("ln_lstm", time=20, batch=1)
    function, tensors = function_of("ln_lstm", layer, checkpoint=checkpoint)
    assert torch.autograd.gradgradcheck(function, leaves_of(tensors), fast_mode=True)


@pytest.mark.parametrize(
    ("cell", "module"),
    [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU), ("rnn", torch.nn.RNN)],
)
def test_plain_cells_have_the_derivatives_of_torch_nn(cell, module):
    theirs = module(2, 3).double()
    weights = dict(theirs.named_parameters())
    x = torch.randn(4, 2, 2, dtype=torch.double)

    def their_loss(x, weight_hh):
        with torch.backends.mkldnn.flags(enabled=False):
            y, _ = functional_call(theirs, weights | {"weight_hh_l0": weight_hh}, (x,))
        return y.square().sum()

    def our_loss(x, weight_hh):
        bias, bias_hh = weights["bias_ih_l0"], weights["bias_hh_l0"]
        bias_hn = None
        if cell == "gru":
            bias_hn = bias_hh[6:]
            bias_hh = torch.cat([bias_hh[:6], torch.zeros_like(bias_hn)])
        y, *_ = rnn_forward(cell, x, weights["weight_ih_l0"], weight_hh, bias + bias_hh, bias_hn)
        return y.square().sum()

    point = (x, weights["weight_hh_l0"].detach())
    assert_all_close([our_loss(*point)], [their_loss(*point)])
    assert_all_close(grad(our_loss, (0, 1))(*point), grad(their_loss, (0, 1))(*point))
    for argument in [0, 1]:
        expected = jacrev(jacrev(their_loss, argument), argument)(*point)
        assert_all_close([jacrev(jacrev(our_loss, argument), argument)(*point)], [expected])
        assert_all_close([hessian(our_loss, argument)(*point)], [expected])


def test_gradients_of_some_outputs_and_inputs():
    layer = make_layer("ln_lstm")
    function, tensors = function_of("ln_lstm", layer)
    for output in range(3):
        leaves = leaves_of(tensors)
        result = function(*leaves)[output]
        all_gradients = torch.autograd.grad(result.sum(), leaves, create_graph=True)
        for i, expected in enumerate(all_gradients):
            one = [t.detach() for t in leaves]
            one[i].requires_grad_()
            (alone,) = torch.autograd.grad(function(*one)[output].sum(), one[i], create_graph=True)
            assert torch.equal(alone, expected)
            assert_all_close(
                torch.autograd.grad(alone.square().sum(), one[i]),
                torch.autograd.grad(expected.square().sum(), leaves[i], retain_graph=True),
            )


def test_y_and_saved_are_differentiated_as_functions_of_the_layer():
    """rnn_backward differentiates y and saved as functions of the layer."""
    arguments, rest = backward_arguments("ln_gru", make_layer("ln_gru"), requires_grad=True)
    y, saved = (t.requires_grad_() for t in arguments[3:5])
    dx, *_ = rnn_backward(*arguments, **rest)
    d_dy, d_y, d_saved = torch.autograd.grad(
        dx.square().sum(), [arguments[0], y, saved], allow_unused=True
    )
    assert d_dy.abs().sum() > 0
    assert d_y is None
    assert d_saved is None


def test_backward_itself_has_derivatives():
    cell = "ln_lstm"
    arguments, rest = backward_arguments(cell, make_layer(cell), eps=0.1)
    names, tensors, others = split({k: v for k, v in rest.items() if torch.is_tensor(v)})
    assert not others

    # Finite differences also change y and saved, which depend on the tensors.
    def backward(dy, dh_n, dc_n, *tensors):
        layer = dict(zip(names, tensors))
        with torch.no_grad():
            y, _, _, saved = rnn_forward(cell, **layer, eps=0.1, save=True)
        results = rnn_backward(
            dy, dh_n, dc_n, y, saved, cell, **layer, eps=0.1, mask=rest["mask"]
        )
        return tuple(t for t in results if t is not None)

    # Tensors here have tangents, with and without a history of their own.
    assert torch.autograd.gradcheck(
        backward, leaves_of([*arguments[:3], *tensors]), fast_mode=True, check_forward_ad=True
    )


def test_forward_mode_adds_no_history():
    """Forward mode gives results a tangent and, without gradients, no history."""
    layer = make_layer("ln_lstm")
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(layer["x"], torch.ones_like(layer["x"]))
        for outputs in [
            rnn_forward("ln_lstm", **(layer | {"x": x}))[:3],
            rnn_step("ln_lstm", **(step_of(layer) | {"x": x[0]})),
        ]:
            for output in outputs:
                assert not output.requires_grad
                primal, tangent = torch.autograd.forward_ad.unpack_dual(output)
                assert tangent is not None
                assert tangent.abs().sum() > 0
    expected = rnn_forward("ln_lstm", **layer)
    assert_all_close([primal], rnn_step("ln_lstm", **step_of(layer))[1:])
    assert expected[0].shape == layer["x"].shape[:2] + (3,)


@pytest.mark.parametrize("cell", SOME_CELLS)
def test_unread_elements_do_not_affect_derivatives(cell):
    """NaN past the end of a sequence, and zero variance there with eps = 0, do not reach
    derivatives."""
    layer = make_layer(cell, time=4, batch=3, inputs=2, hidden=5)
    layer["lengths"] = torch.tensor([4, 3, 3] if over_batch(cell) else [4, 1, 2])
    if over_batch(cell):
        layer["lengths"][0] = 3  # no sequence has the last step
    results = {}
    for fill in [0.0, float("nan")]:
        for t, length in enumerate(layer["lengths"]):
            layer["x"][length:, t] = fill
        function, tensors = function_of(cell, layer, eps=0.0)
        leaves = leaves_of(tensors)
        gradients = torch.autograd.grad(loss_of(function(*leaves)), leaves, create_graph=True)
        seconds = torch.autograd.grad(sum(g.square().sum() for g in gradients), leaves)
        tangents = jvp(lambda *t: loss_of(function(*t)), tuple(tensors), tuple(tensors))
        results[fill] = [t.detach() for t in [*gradients, *seconds]]
        assert all(t.isfinite().all() for t in results[fill])
        if fill == 0:
            assert tangents[1].isfinite()
    for a, b in zip(*results.values()):
        assert torch.equal(a, b)


@pytest.mark.parametrize("cell", SOME_CELLS)
@pytest.mark.parametrize(("time", "batch"), [(0, 2), (3, 0), (0, 0)])
def test_no_steps_and_no_sequences(cell, time, batch):
    layer = make_layer(cell, time=time, batch=batch, resets=True)
    function, tensors = function_of(cell, layer)
    leaves = leaves_of(tensors)
    outputs = function(*leaves)
    assert outputs[0].shape == (time, batch, layer["h0"].shape[1])
    assert torch.equal(outputs[1], layer["h0"])
    gradients = torch.autograd.grad(loss_of(outputs), leaves, create_graph=True)
    names, _, _ = split(layer)
    for name, gradient, leaf in zip(names, gradients, leaves):
        assert gradient.shape == leaf.shape
        if name not in ("h0", "c0"):
            assert gradient.count_nonzero() == 0
    total = sum(g.square().sum() for g in gradients)
    seconds = torch.autograd.grad(total, leaves, allow_unused=True)
    for name, second in zip(names, seconds):
        if name not in ("h0", "c0") and second is not None:
            assert second.count_nonzero() == 0
    primals, tangents = jvp(function, tuple(tensors), tuple(tensors))
    assert [t.shape for t in primals] == [t.shape for t in outputs]
    assert torch.equal(tangents[1], layer["h0"])
    if not over_batch(cell):
        step = step_of(make_layer(cell, batch=0))
        h1, c1 = rnn_step(cell, **step)
        assert h1.shape == (0, layer["h0"].shape[1])
        assert c1.shape == ((0, layer["c0"].shape[1]) if is_lstm(cell) else (0,))


# ---- torch.func


@pytest.mark.parametrize("cell", SOME_CELLS)
@pytest.mark.parametrize("sequences", [False, True])
def test_functional_transforms_agree_with_autograd(cell, sequences):
    batch = 4 if over_batch(cell) else 2
    layer = make_layer(cell, batch=batch, lengths=sequences, resets=sequences)
    function, tensors = function_of(cell, layer)
    every = tuple(range(len(tensors)))

    def loss(*tensors):
        return loss_of(function(*tensors))

    leaves = leaves_of(tensors)
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    # The kernels and arguments are the same, and so are the bits.
    for ours in [grad(loss, every)(*tensors), vjp(loss, *tensors)[1](torch.tensor(1.0).double())]:
        for a, b in zip(ours, gradients):
            assert torch.equal(a, b)
    assert_all_close(jacrev(loss, every)(*tensors), gradients)
    assert_all_close(jacfwd(loss, every)(*tensors), gradients)
    directions = [torch.randn_like(t) for t in tensors]
    _, tangent = jvp(loss, tuple(tensors), tuple(directions))
    assert_all_close([tangent], [sum((g * d).sum() for g, d in zip(gradients, directions))])

    x, others = tensors[0], tensors[1:]
    expected = torch.autograd.functional.hessian(lambda x: loss(x, *others), x)
    for ours in [hessian, lambda f: jacrev(jacrev(f)), lambda f: jacfwd(jacfwd(f))]:
        assert_all_close([ours(lambda x: loss(x, *others))(x)], [expected])
    _, tangent = jvp(grad(loss), tuple(tensors), (directions[0], *map(torch.zeros_like, others)))
    assert_all_close([tangent], [torch.tensordot(expected, directions[0], dims=3)])


@pytest.mark.parametrize("name", ["x", "weight_hh", "h0", "resets"])
@pytest.mark.parametrize("cell", ["ln_lstm", "ln_lstm projected", "ln_gru", "ln_gru heads", "bn_rnn"])
def test_vmap_matches_a_loop(cell, name):
    layer = make_layer(cell, resets=True)
    stack = torch.stack([layer[name], layer[name].flip(0), layer[name].roll(1, 0)], dim=1)

    def forward(t):
        return rnn_forward(cell, **(layer | {name: t}))[:2]

    def step(t):
        return rnn_step(cell, **step_of(layer | {name: t}))[0]

    ours = vmap(forward, in_dims=1, out_dims=(1, 0))(stack)
    theirs = [forward(t) for t in stack.unbind(1)]
    assert torch.equal(ours[0], torch.stack([y for y, _ in theirs], dim=1))
    assert torch.equal(ours[1], torch.stack([h_n for _, h_n in theirs]))
    if name != "resets" and not over_batch(cell):
        assert torch.equal(vmap(step, 1)(stack), torch.stack([step(t) for t in stack.unbind(1)]))
    if name == "resets":
        return

    def loss(t):
        return loss_of(forward(t))

    expected = torch.stack([grad(loss)(t) for t in stack.unbind(1)], dim=1)
    assert torch.equal(vmap(grad(loss), 1, 1)(stack), expected)
    assert torch.equal(grad(lambda s: vmap(loss, 1)(s).sum())(stack), expected)
    expected = torch.stack([hessian(loss)(t) for t in stack.unbind(1)])
    assert_all_close([vmap(hessian(loss), 1)(stack)], [expected])


# ---- torch.library, torch.compile and torch.export


@pytest.mark.long
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    ("cell", "given", "settings"),
    [
        ("ln_lstm", {}, {}),
        ("ln_gru", {"states": False}, {"save": True}),
        ("ln_lstm", {"lengths": True, "resets": True}, {"reverse": True}),
        ("gru", {"lengths": True, "resets": True}, {"checkpoint": True}),
        ("ln_lstm_contrib", {"resets": True}, {"checkpoint": True}),
        ("bn_rnn", {"lengths": True}, {}),
        ("ln_lstm projected", {"lengths": True, "resets": True}, {}),
        ("ln_gru heads", {}, {}),
    ],
    ids="ln_lstm stateless sequences gru checkpoint bn_rnn projected heads".split(),
)
def test_opcheck(cell, given, settings, requires_grad):
    layer = make_layer(cell, time=2, batch=3, **given)
    for t in layer.values():
        t.requires_grad_(requires_grad and t.is_floating_point())
    torch.library.opcheck(rnn_forward.default, (cell_of(cell),), layer | settings)
    if not over_batch(cell):
        step = step_of(layer) | {"x": layer["x"][0].detach().requires_grad_(requires_grad)}
        torch.library.opcheck(rnn_step.default, (cell_of(cell),), step)
    settings = {k: v for k, v in settings.items() if k != "save"}
    arguments, rest = backward_arguments(cell, layer, requires_grad, **settings)
    torch.library.opcheck(rnn_backward.default, arguments, rest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_sixteen_bits_are_computed_in_float(cell, dtype):
    given = {} if over_batch(cell) else {"lengths": True, "resets": True}
    narrow = make_layer(cell, 5, 3, 4, 6, dtype=dtype, **given)
    wide = {k: v.float() if v.is_floating_point() else v for k, v in narrow.items()}
    outputs, gradients = [], []
    for layer in (narrow, wide):
        leaves = {k: v.detach().requires_grad_(v.is_floating_point()) for k, v in layer.items()}
        results = rnn_forward(cell, **leaves)[: 3 if is_lstm(cell) else 2]
        torch.manual_seed(2)
        seeds = [torch.randn(r.shape).to(dtype).to(r.dtype) for r in results]
        outputs.append(results)
        inputs = [v for v in leaves.values() if v.requires_grad]
        gradients.append(torch.autograd.grad(results, inputs, seeds))
    assert all(torch.equal(n, w.to(dtype)) for n, w in zip(*outputs, strict=True))
    for n, w in zip(*gradients, strict=True):
        assert n.dtype == dtype
        # Backward gets a rounded y and rounds its results: two roundings of the largest element.
        # Norms over a batch of three amplify them.
        most = 16 if over_batch(cell) else 2
        assert (n.float() - w).abs().max() <= most * torch.finfo(dtype).eps * w.abs().max()
    if not over_batch(cell):
        params = {k: v for k, v in narrow.items() if k in [*PARAMS, "weight_hr"]}
        step = step_of(narrow)
        expected = rnn_step(cell, **step_of(wide))
        for packed in (None, rnn_pack(cell, **params)):
            for n, w in zip(rnn_step(cell, **step, packed=packed), expected, strict=True):
                assert torch.equal(n, w.to(dtype))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_of_sixteen_bits(requires_grad):
    layer = make_layer("ln_lstm", 2, 3, dtype=torch.bfloat16)
    for t in layer.values():
        t.requires_grad_(requires_grad)
    torch.library.opcheck(rnn_forward.default, ("ln_lstm",), layer | {"save": True})
    step = step_of(layer) | {"x": layer["x"][0].detach().requires_grad_(requires_grad)}
    torch.library.opcheck(rnn_step.default, ("ln_lstm",), step)


def test_derivatives_of_sixteen_bits_are_computed_in_float():
    """Second derivatives and those in forward mode, which bfloat16 itself cannot represent."""
    narrow = make_layer("ln_gru", 4, 2, dtype=torch.bfloat16)
    wide = {k: v.float() for k, v in narrow.items()}
    x, rest = narrow.pop("x"), narrow
    u = torch.randn_like(x)

    def y(x, layer):
        return rnn_forward("ln_gru", x, **layer)[0]

    wide_rest = {k: v for k, v in wide.items() if k != "x"}
    _, found = jvp(lambda x: y(x, rest), (x,), (u,))
    _, expected = jvp(lambda x: y(x, wide_rest), (wide["x"],), (u.float(),))
    assert (found.float() - expected).abs().max() <= 2**-7 * expected.abs().max()
    seconds = []
    for layer, at in ((rest, x), (wide_rest, wide["x"])):
        leaf = at.detach().requires_grad_()
        first = torch.autograd.grad(y(leaf, layer).sum(), leaf, create_graph=True)[0]
        seconds.append(torch.autograd.grad((first * u.to(first.dtype)).sum(), leaf)[0])
    assert (seconds[0].float() - seconds[1]).abs().max() <= 2**-6 * seconds[1].abs().max()


@pytest.mark.parametrize(
    ("cell", "backend"),
    [("ln_gru", "aot_eager"), ("bn_rnn", "aot_eager"), ("ln_lstm", "inductor")],
)
def test_compiles_in_one_graph_with_dynamic_shapes(cell, backend):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)

    def forward(x, h0, lengths, rest):
        y, h_n, c_n, _ = rnn_forward(cell, x.sin(), h0=h0, lengths=lengths, **rest)
        h1 = h_n if over_batch(cell) else rnn_step(cell, x[0], h0=h0, **rest)[0]
        return [y * 2, h_n, c_n + 1, h1]

    compiled = torch.compile(forward, fullgraph=True, dynamic=True, backend=counter)
    # All sizes differ: the compiler assumes that sizes which are equal at first stay equal.
    for time, batch in [(7, 5), (11, 6), (8, 4)]:
        layer = make_layer(cell, time, batch, inputs=3, hidden=9, lengths=True)
        layer.pop("c0", None)
        leaves = {k: v.requires_grad_(v.is_floating_point()) for k, v in layer.items()}
        x, h0, lengths = (leaves.pop(name) for name in ["x", "h0", "lengths"])
        inputs = [x, h0, *leaves.values()]
        ours, theirs = ([*f(x, h0, lengths, leaves)] for f in [compiled, forward])
        assert_all_close(ours, theirs)
        ours, theirs = (torch.autograd.grad(loss_of(outputs), inputs) for outputs in [ours, theirs])
        assert_all_close(ours, theirs)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    "transform",
    [grad, jacfwd, lambda f: vmap(grad(f)), lambda f: jacrev(jacrev(f))],
    ids=["grad", "jacfwd", "vmap_grad", "jacrev_jacrev"],
)
def test_compiles_functional_transforms(transform):
    torch._dynamo.reset()
    layer = make_layer("ln_lstm", time=2)
    x = layer.pop("x")  # two sequences of one step for vmap, otherwise two steps

    def loss(x):
        return loss_of(rnn_forward("ln_lstm", x.reshape(-1, 2, 2), **layer)[:3])

    compiled = torch.compile(transform(loss), fullgraph=True, backend="aot_eager")
    assert_all_close([compiled(x)], [transform(loss)(x)])


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = make_layer("ln_lstm", inputs=3, hidden=9, states=False)
        del layer["x"]
        self.parameters_of_layer = torch.nn.ParameterDict(layer)

    def forward(self, x, lengths):
        parameters = dict(self.parameters_of_layer.items())
        return rnn_forward("ln_lstm", x, **parameters, lengths=lengths)[:3]


def test_exports_with_dynamic_shapes():
    module = Module()
    time, batch = torch.export.Dim("time"), torch.export.Dim("batch")
    x, lengths = torch.randn(7, 5, 3).double(), torch.tensor([7, 6, 5, 4, 1])
    program = torch.export.export(
        module, (x, lengths), dynamic_shapes=({0: time, 1: batch}, {0: batch})
    )
    assert any(node.target is rnn_forward.default for node in program.graph.nodes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    x, lengths = torch.randn(4, 2, 3).double(), torch.tensor([1, 4])
    for ours in [program, loaded, program.run_decompositions()]:
        for a, b in zip(ours.module()(x, lengths), module(x, lengths)):
            assert torch.equal(a, b)


# ---- Autocast


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.float, torch.double])
@pytest.mark.parametrize("cell", ["ln_lstm", "gru"])
def test_autocast_computes_in_float_and_returns_the_type_of_x(cell, dtype):
    layer = make_layer(cell, dtype=dtype)
    exact = torch.double if dtype == torch.double else torch.float
    wide = {k: v.to(exact) for k, v in layer.items()}
    results = {}
    for name, tensors in [("low", layer), ("wide", wide)]:
        leaves = {k: v.requires_grad_() for k, v in tensors.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=name == "low"):
            outputs = [*rnn_forward(cell, **leaves)[:3], *rnn_step(cell, **step_of(leaves))]
            outputs = [t for t in outputs if t.numel() > 0]
        # The gradient of the float results has dtype, so the float layer gets the same.
        dy = [torch.ones_like(t) for t in outputs]
        results[name] = outputs, torch.autograd.grad(outputs, [*leaves.values()], dy)
    for low, exact in zip(results["low"][0], results["wide"][0]):
        assert low.dtype == dtype
        assert torch.equal(low, exact.to(dtype))  # rounded once, at the end
    for low, exact in zip(results["low"][1], results["wide"][1]):
        assert low.dtype == dtype
        # A gradient is the sum of those of two calls, each rounded to dtype, and is rounded again.
        bound = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(low, exact.to(dtype), rtol=bound, atol=4 * bound)


def test_autocast_of_layers_in_mixed_types():
    layer = make_layer("ln_lstm", dtype=torch.float)
    low = layer | {"x": layer["x"].bfloat16(), "h0": layer["h0"].half()}
    wide = layer | {"x": low["x"].float(), "h0": low["h0"].float()}
    with torch.autocast("cpu", torch.bfloat16):
        y, h_n, c_n, _ = rnn_forward("ln_lstm", **low)
        packed = rnn_pack("ln_lstm", *(wide.get(name) for name in PARAMS))
        few = {k: v.bfloat16() for k, v in low.items() if k in ["x", "weight_ih", "weight_hh"]}
        from_packed = rnn_forward("ln_lstm", **few, h0=wide["h0"], c0=wide["c0"], packed=packed)
    expected = rnn_forward("ln_lstm", **wide)
    for ours, theirs in zip([y, h_n, c_n], expected):
        assert ours.dtype == torch.bfloat16
        assert torch.equal(ours, theirs.bfloat16())
    assert torch.equal(from_packed[0], y)


def test_autocast_does_not_affect_derivatives():
    """Second and forward-mode derivatives consist of products that autocast would compute in
    bfloat16."""
    layer = make_layer("ln_gru", dtype=torch.float)
    function, tensors = function_of("ln_gru", layer)

    def derivatives():
        leaves = leaves_of(tensors)
        loss = loss_of(function(*leaves))
        gradients = torch.autograd.grad(loss, leaves, create_graph=True)
        seconds = torch.autograd.grad(sum(g.square().sum() for g in gradients), leaves)
        with torch.autograd.forward_ad.dual_level():
            duals = [torch.autograd.forward_ad.make_dual(t, t) for t in tensors]
            tangents = [torch.autograd.forward_ad.unpack_dual(t).tangent for t in function(*duals)]
        return [*seconds, *tangents]

    expected = derivatives()
    with torch.autocast("cpu", torch.bfloat16):
        ours = derivatives()
    for a, b in zip(ours, expected):
        assert torch.equal(a, b)


def test_autocast_compiles():
    torch._dynamo.reset()
    layer = make_layer("ln_lstm", dtype=torch.float)
    layer["x"] = layer["x"].bfloat16()

    def forward(layer):
        with torch.autocast("cpu", torch.bfloat16):
            return rnn_forward("ln_lstm", **layer)[0]

    compiled = torch.compile(forward, fullgraph=True, backend="aot_eager")
    assert compiled(layer).dtype == torch.bfloat16
    assert torch.equal(compiled(layer), forward(layer))


# ---- Other kinds of tensors


@pytest.mark.parametrize("cell", SOME_CELLS)
def test_inference_mode(cell):
    layer = make_layer(cell, resets=True)
    leaves = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in layer.items()}
    expected = rnn_forward(cell, **leaves)[0].detach()
    with torch.inference_mode():
        for tensors in [leaves, {k: v.clone() for k, v in leaves.items()}]:
            y, *_, saved = rnn_forward(cell, **tensors)
            assert y.is_inference()
            assert torch.equal(y, expected)
            assert saved.numel() == 0
            if not over_batch(cell):
                assert rnn_step(cell, **step_of(tensors))[0].is_inference()


@pytest.mark.parametrize("cell", SOME_CELLS)
def test_strided_tensors(cell):
    layer = make_layer(cell, batch=3, lengths=True, resets=True)
    strided = {k: torch.stack([v, v], -1).select(-1, 1) for k, v in layer.items()}
    strided["x"] = layer["x"].transpose(0, 1).contiguous().transpose(0, 1)
    results = []
    for tensors in [layer, strided]:
        function, values = function_of(cell, tensors)
        leaves = [v.detach().requires_grad_() for v in values]
        outputs = function(*leaves)
        # Gradients that are not contiguous.
        dy = [torch.ones(*output.shape, 2).double()[..., 0] for output in outputs]
        gradients = torch.autograd.grad(outputs, leaves, dy, create_graph=True)
        seconds = torch.autograd.grad(sum(g.square().sum() for g in gradients), leaves)
        results.append([*outputs, *gradients, *seconds])
    assert not strided["x"].is_contiguous()
    for a, b in zip(*results):
        # Second derivatives consist of matrix products, whose order of sums depends on the strides.
        torch.testing.assert_close(a, b, **SAME)


# ---- Errors


def error_of(function, *arguments, **settings):
    with pytest.raises(ValueError) as error:
        function(*arguments, **settings)
    return str(error.value).splitlines()[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cell": "lnlstm"}, "cell must be one of rnn, rnn_relu, lstm, "),
        ({"x": torch.ones(2, 2)}, "x must have 3 dimensions, [T, B, I], got [2, 2]"),
        ({"x": torch.ones(3, 2, 5).double()}, "x must have [3, 2, 2], got [3, 2, 5]"),
        (
            {"x": torch.ones(3, 2, 2).half()},
            "weight_ih must have x's type and device, Half on cpu, got Double on cpu",
        ),
        (
            {"x": torch.ones(3, 2, 2).long()},
            "x must be float, double, bfloat16 or half, got Long",
        ),
        (
            {"weight_hh": torch.ones(12, 3)},
            "weight_hh must have x's type and device, Double on cpu, got Float on cpu",
        ),
        (
            {"weight_hh": torch.ones(12, 3, device="meta").double()},
            "weight_hh must have x's type and device, Double on cpu, got Double on meta",
        ),
        ({"bias": torch.ones(11).double()}, "bias must have [12], got [11]"),
        ({"h0": torch.ones(3, 3).double()}, "h0 must have [2, 3], got [3, 3]"),
        ({"bias_hn": torch.ones(3).double()}, "bias_hn must be left out for ln_lstm, got [3]"),
        ({"lengths": torch.tensor([4, 1])}, "lengths[0] must be at least 1 and at most time, 3, got 4"),
        ({"lengths": torch.ones(2)}, "lengths must be Long on cpu, got Float on cpu"),
        ({"h_reset": torch.ones(3).double()}, "h_reset must be left out without resets, got"),
        ({"eps": -1.0}, "[rnn_forward] eps must be finite and at least 0, got -1"),
        ({"eps": float("nan")}, "[rnn_forward] eps must be finite and at least 0, got nan"),
    ],
)
def test_errors_of_forward(change, text):
    layer = {"cell": "ln_lstm"} | make_layer("ln_lstm") | change
    assert text in error_of(rnn_forward, **layer)
    if torch.is_tensor(layer["x"]) and layer["x"].is_floating_point():
        # The errors are the same if derivatives are needed.
        x = layer["x"].clone().requires_grad_()
        assert text in error_of(rnn_forward, **(layer | {"x": x}))
        del layer["x"]
        forward = lambda x: rnn_forward(x=x, **layer)[:3]  # noqa: E731
        assert text in error_of(jvp, forward, (x.detach(),), (x.detach(),))


def test_errors_of_the_other_operators():
    layer = make_layer("ln_lstm")
    step = step_of(layer)
    assert "[rnn_step] x must have 2 dimensions, [B, I], got [3, 2, 2]" == error_of(
        rnn_step, "ln_lstm", **(step | {"x": layer["x"]})
    )
    batch_norm = step_of(make_layer("bn_lstm"))
    for requires_grad in [False, True]:
        batch_norm["x"].requires_grad_(requires_grad)
        text = "[rnn_step] cell must be a cell without batch norm, got bn_lstm"
        assert error_of(rnn_step, "bn_lstm", **batch_norm) == text
    packed = rnn_pack("ln_lstm", *(layer.get(name) for name in PARAMS))
    text = "packed must be left out if gradients are needed, got packed weights"
    x = layer["x"].clone().requires_grad_()
    arguments = layer | {"packed": packed}
    assert f"[rnn_forward] {text}" == error_of(rnn_forward, "ln_lstm", **(arguments | {"x": x}))
    del arguments["x"]
    forward = lambda x: rnn_forward("ln_lstm", x, **arguments)[0]  # noqa: E731
    assert f"[rnn_forward] {text}" == error_of(jvp, forward, (layer["x"],), (layer["x"],))

    arguments, rest = backward_arguments("ln_lstm", layer)
    wrong = rest | {"mask": rest["mask"][:3]}
    assert "[rnn_backward] mask must have 18 values, got 3" in error_of(
        rnn_backward, *arguments, **wrong
    )
    wrong = rest | {"mask": [*rest["mask"][:15], True, False, False]}
    wrong_hr = rest | {"mask": [*rest["mask"][:17], True]}
    assert "[rnn_backward] mask[17] must be false without weight_hr, got true" in error_of(
        rnn_backward, *arguments, **wrong_hr
    )
    dy = arguments[0].clone().requires_grad_()
    assert "[rnn_backward] mask[15] must be false without h_reset if second" in error_of(
        rnn_backward, dy, *arguments[1:], **wrong
    )
