"""Turns LayerNorm into RMSNorm without a change of the model's results.

LayerNorm(x) is RMSNorm(x) + bias for rows x with mean 0. ``prove`` finds the layers that write the
inputs of the norms through sums (the residual stream), and shows that these inputs have mean 0 once
the layers' results are centred: ``W -= mean(W)`` over their outputs, biases likewise. All readers
of the stream must be norms over the same features, which do not see that change. The bias of each
norm goes into the linear layers that read it (Jiang et al. 2023, "Pre-RMSNorm and Pre-CRMSNorm
Transformers").

The graph is that of ``torch.export`` for the given inputs. Raises Unfit where the proof fails.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.utils import _pytree as pytree

from planish._convert.fast_path import adapt_fast_path
from planish._convert.report import Unfit

__all__ = ["Inputs", "Rewrite", "prove", "verify"]

# A value of the graph with the dimension of its features.
_Value: TypeAlias = tuple[Node, int]

# The largest difference of outputs in float64, relative to the largest output: sums of up to 1e5
# elements through a hundred layers round to less.
_TOLERANCE = 1e-8

_LAYER_NORMS = {
    "aten::layer_norm", "planish::affine_layer_norm", "planish::layer_norm",
    "planish::layer_norm_simple",
}  # fmt: skip
# Operations that only rearrange elements in their order in memory, or change types.
_RESHAPES = {
    "aten::_to_copy", "aten::_unsafe_view", "aten::alias", "aten::clone", "aten::contiguous",
    "aten::detach", "aten::flatten", "aten::reshape", "aten::squeeze", "aten::to",
    "aten::unflatten", "aten::unsqueeze", "aten::view", "aten::view_as", "aten::type_as",
}  # fmt: skip
_SUMS = {"aten::add": 1, "aten::add_": 1, "aten::sub": -1, "aten::sub_": -1}
# Operations that read no element.
_CHECKS = {"aten::_assert_tensor_metadata", "aten::sym_size", "aten::sym_numel"}
# Operations along one dimension, their third argument or `dim`, which must not be the features'.
_ALONG = {"aten::select", "aten::slice", "aten::index_select", "aten::narrow"}
_SPLITS = {"aten::split", "aten::split_with_sizes", "aten::chunk", "aten::unbind"}


@dataclass(frozen=True)
class _Fold:
    """The bias of a norm that goes into a linear layer."""

    norm: str  #: name of the norm's bias
    weight: str  #: name of the linear layer's weight
    inputs: int  #: dimension of its inputs
    bias: str | None  #: name of its bias, if it has one
    layer: str  #: name of the layer


@dataclass
class Rewrite:
    """Changes of parameters that make norms exact."""

    centred: dict[str, int] = field(default_factory=dict)  #: tensor -> dimension of the features
    folds: list[_Fold] = field(default_factory=list)
    dropouts: list[str] = field(default_factory=list)  #: modules that are off in evaluation

    def apply(self, model: nn.Module) -> None:
        """Changes the parameters of model in place."""
        with torch.no_grad():
            for fold in self.folds:
                weight = _tensor(model, fold.weight)
                wide = weight.double() if fold.inputs == 1 else weight.double().t()
                added = wide @ _tensor(model, fold.norm).double()
                if fold.bias is None:
                    new = nn.Parameter(added.to(weight.dtype), weight.requires_grad)
                    model.get_submodule(fold.layer).bias = new
                else:
                    bias = _tensor(model, fold.bias)
                    bias.copy_(bias.double() + added)
            tensors = [(_tensor(model, name), dim) for name, dim in self.centred.items()]
            for fold in self.folds:
                if fold.bias is None and self.centred.get(fold.weight) == 0:
                    tensors.append((_tensor(model, f"{fold.layer}.bias".lstrip(".")), 0))
            for tensor, dim in tensors:
                wide = tensor.double()
                tensor.copy_(wide - wide.mean(dim, keepdim=True))

    def notes(self) -> list[str]:
        """Returns lines for the report."""
        lines = [f"centred: {', '.join(self.centred)}"] if self.centred else []
        layers = dict.fromkeys(fold.layer for fold in self.folds)
        if layers:
            lines.append(f"biases of norms are in: {', '.join(layers)}")
        if self.dropouts:
            lines.append(
                f"exact in evaluation: dropout ({', '.join(self.dropouts)}) changes means in "
                "training"
            )
        return lines


@dataclass(frozen=True)
class Inputs:
    """Arguments of the model's forward."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @staticmethod
    def of(inputs: Any) -> "Inputs":
        """Takes a tuple or list of arguments, a dictionary of named ones, or a tensor."""
        if isinstance(inputs, dict):
            return Inputs((), dict(inputs))
        return Inputs(tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {})

    def call(self, model: nn.Module) -> Any:
        return model(*self.args, **self.kwargs)


def prove(model: nn.Module, chosen: dict[nn.Module, str], inputs: Inputs) -> Rewrite:
    """Returns the rewrite after which each chosen LayerNorm is an RMSNorm.

    chosen: LayerNorms with their names. Raises Unfit where the proof fails.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise Unfit(f"{name} has no values: it is on the meta device")
    return _Proof(model, chosen, _export(model, inputs)).run()


def verify(
    model: nn.Module, rewrite: Rewrite, after: dict[str, nn.Module], inputs: Inputs
) -> None:
    """Raises Unfit if the rewritten model with the norms `after` has other results in float64.

    Tries the inputs, and random ones of their shapes.
    """
    try:
        _compare(model, rewrite, after, inputs)
    except Unfit:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unfit(f"the comparison in float64 fails: {text}") from error


def _compare(
    model: nn.Module, rewrite: Rewrite, after: dict[str, nn.Module], inputs: Inputs
) -> None:
    expected_of = copy.deepcopy(model).double()
    actual_of = copy.deepcopy(expected_of)
    rewrite.apply(actual_of)
    for name, norm in after.items():
        parent, _, attribute = name.rpartition(".")
        new = copy.deepcopy(norm).double()
        new.train(model.get_submodule(name).training)
        setattr(actual_of.get_submodule(parent), attribute, new)
    adapt_fast_path(actual_of, {actual_of.get_submodule(name) for name in after})
    generator = torch.Generator().manual_seed(0)

    def double(x: Any, random: bool) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        if random:
            noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            return noise.to(x.device)
        return x.double()

    for random in (False, True):
        args, kwargs = pytree.tree_map(
            lambda x: double(x, random), (inputs.args, inputs.kwargs)
        )
        results = []
        for one in (expected_of, actual_of):
            with torch.no_grad(), torch.random.fork_rng([]):
                torch.manual_seed(0)
                results.append(Inputs(*copy.deepcopy((args, kwargs))).call(one))
        for a, b in zip(*(pytree.tree_leaves(result) for result in results)):
            if isinstance(a, Tensor) and a.is_floating_point() and a.numel() > 0:
                size = max(1.0, float(a.abs().max()))
                difference = float((a.double() - b.double()).abs().max())
                if not difference <= _TOLERANCE * size:
                    raise Unfit(f"the results in float64 differ by {difference / size:.2g}")


def _tensor(model: nn.Module, name: str) -> Tensor:
    parent, _, attribute = name.rpartition(".")
    tensor = getattr(model.get_submodule(parent), attribute)
    assert isinstance(tensor, Tensor)
    return tensor


def _export(model: nn.Module, inputs: Inputs) -> Any:
    try:
        with torch.inference_mode(False):
            return torch.export.export(model, inputs.args, inputs.kwargs, strict=False)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unfit(f"torch.export cannot trace the model: {text}") from error


def _name_of(node: Node) -> str:
    return str(getattr(getattr(node.target, "_schema", None), "name", node.target))


def _shape(node: Node) -> list[int]:
    value = node.meta["val"]
    return [int(size) for size in value.shape] if isinstance(value, Tensor) else []


def _is_one(node: Node, *names: str) -> bool:
    return node.op == "call_function" and _name_of(node) in names


def _argument(node: Node, name: str) -> Any:
    """Returns the argument called name of an operator, or None."""
    schema: Any = getattr(node.target, "_schema")
    for i, argument in enumerate(schema.arguments):
        if argument.name == name:
            given = node.args[i] if i < len(node.args) else node.kwargs.get(name)
            return argument.default_value if given is None else given
    return None


class _Proof:
    def __init__(self, model: nn.Module, chosen: dict[nn.Module, str], exported: Any) -> None:
        self.model, self.chosen = model, chosen
        self.nodes: list[Node] = list(exported.graph.nodes)
        signature = exported.graph_signature
        self.names: dict[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
        }
        self.rewrite = Rewrite()
        self.tensors: dict[Node, tuple[str, Tensor]] = {}  # placeholders of parameters and buffers
        for node in self.nodes:
            if node.op == "placeholder" and node.name in self.names:
                name = self.names[node.name]
                self.tensors[node] = (name, _tensor(model, name))
        self.seen: set[_Value] = set()  # sources found
        self.shifted: set[_Value] = set()  # values whose readers are checked
        self.checked: set[str] = set()  # tensors whose users are checked

    def run(self) -> Rewrite:
        calls: dict[nn.Module, list[Node]] = {module: [] for module in self.chosen}
        for node in self.nodes:
            if _is_one(node, *_LAYER_NORMS):
                module = self.module_of(node)
                if module in calls:
                    calls[module].append(node)
        for module, found in calls.items():
            name = self.chosen[module]
            if not found:
                raise Unfit(f"{name} is not called with these inputs")
            for node in found:
                try:
                    self.check_norm(node)
                    self.find_sources(self.input_of(node))
                    self.fold_bias(node, module)
                except Unfit as unfit:
                    raise Unfit(f"{name}: {unfit}") from None
        self.check_memory()
        return self.rewrite

    # Facts about nodes.

    def path_of(self, node: Node) -> str:
        """Returns the name of the module whose forward calls the operator."""
        stack = node.meta.get("nn_module_stack")
        return str(list(stack.values())[-1][0]) if stack else ""

    def module_of(self, node: Node) -> nn.Module:
        return self.model.get_submodule(self.path_of(node))

    def text(self, node: Node) -> str:
        if node.op == "output":
            return "the result of the model"
        if node.op == "placeholder":
            name = self.tensors[node][0] if node in self.tensors else node.name
            return name if node in self.tensors else f"the argument {name}"
        path = self.path_of(node)
        return _name_of(node).replace("aten::", "") + (f" in {path}" if path else "")

    def check_norm(self, node: Node) -> None:
        x = node.args[0]
        assert isinstance(x, Node)
        shape = _argument(node, "normalized_shape")
        if shape is not None and len(shape) != 1:
            raise Unfit(f"it normalizes {len(shape)} dimensions")
        if _shape(x)[-1] < 2:
            raise Unfit("its rows have one element")

    def input_of(self, node: Node) -> _Value:
        x = node.args[0]
        assert isinstance(x, Node)
        return x, len(_shape(x)) - 1

    # Backward: the layers that write a value.

    def find_sources(self, value: _Value) -> None:
        """Adds the tensors to centre, so that the value has mean 0 over its features."""
        if value in self.seen:
            return
        self.seen.add(value)
        node, dim = value
        if node in self.tensors:
            self.centre(node, dim)
            return
        if node.op != "call_function":
            raise Unfit(f"{self.text(node)} writes its input")
        if _is_one(node, *_LAYER_NORMS):
            self.add_norm(node, dim)
            return
        written = self.writers(node, dim)
        if written is not None:
            for tensor, at in written:
                self.centre(tensor, at)
            return
        inputs = self.linear_inputs(node, dim)
        if inputs is None:
            raise Unfit(f"{self.text(node)} writes its input, and its mean is not known to be 0")
        for one in inputs:
            self.find_sources(one)

    def writers(self, node: Node, dim: int) -> list[_Value] | None:
        """Returns the tensors of a layer with the dimension of its outputs, or None."""
        last = len(_shape(node)) - 1
        found: list[tuple[Any, int]]
        if _is_one(node, *_LAYER_NORMS) and dim == last:
            found = [(_argument(node, "bias"), 0)]
        elif _is_one(node, "aten::linear") and dim == last:
            found = [(node.args[1], 0), (_argument(node, "bias"), 0)]
        elif _is_one(node, "aten::addmm") and dim == 1:
            found = [(node.args[2], 1), (node.args[0], 0)]
        elif _is_one(node, "aten::mm", "aten::matmul") and dim == last:
            if not isinstance(node.args[1], Node) or len(_shape(node.args[1])) != 2:
                return None
            found = [(node.args[1], 1)]
        elif _is_one(node, "aten::embedding") and dim == last:
            found = [(node.args[0], 1)]
        elif (
            _is_one(node, "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution")
            and dim == 1
        ):
            found = [(node.args[1], 0), (_argument(node, "bias"), 0)]
        else:
            return None
        tensors = []
        for tensor, at in found:
            if tensor is None:
                continue
            if tensor not in self.tensors:
                if _is_one(node, *_LAYER_NORMS):
                    continue
                raise Unfit(f"the weight of {self.text(node)} is computed")
            tensors.append((tensor, at))
        return tensors

    def linear_inputs(self, node: Node, dim: int) -> list[_Value] | None:
        """Returns the values of which the node is a sum without weights for single features.

        If all have mean 0, the node has. None if it is another operation.
        """
        name = _name_of(node)
        shape = _shape(node)
        x: Any = node.args[0] if node.args else None
        if name == "<built-in function getitem>":
            return self.linear_inputs_of_part(x, dim)
        if name in _SUMS:
            return [self.aligned(operand, dim, shape) for operand in node.args[:2]]
        if name in ("aten::mul", "aten::div", "aten::mul_", "aten::div_", "aten::neg"):
            return self.scaled(node, dim)
        if not isinstance(x, Node) and name not in ("aten::cat", "aten::stack"):
            return None
        if name == "aten::dropout":
            return [(x, dim)] if self.is_off(node) else None
        if name in _RESHAPES:
            at = _same_place(shape, dim, _shape(x))
            return None if at is None else [(x, at)]
        if name == "aten::expand":
            at = dim - (len(shape) - len(_shape(x)))
            return [(x, at)] if at >= 0 and _shape(x)[at] == shape[dim] else None
        if name in ("aten::transpose", "aten::transpose_", "aten::t"):
            swapped: list[Any] = [0, 1] if name == "aten::t" else list(node.args[1:3])
            a, b = (int(one) % len(shape) for one in swapped)
            return [(x, b if dim == a else a if dim == b else dim)]
        if name == "aten::permute":
            return [(x, int(_argument(node, "dims")[dim]) % len(shape))]
        if name in _ALONG:
            along = int(_argument(node, "dim")) % len(_shape(x))
            before = dim + (name == "aten::select" and dim >= along)
            return [(x, before)] if before != along else None
        if name == "aten::cat":
            along = int(_argument(node, "dim")) % len(shape)
            return [(one, dim) for one in x] if dim != along else None
        if name in ("aten::mean", "aten::sum") and _argument(node, "dim"):
            over = {int(one) % len(_shape(x)) for one in _argument(node, "dim")}
            kept = [one for one in range(len(_shape(x))) if one not in over]
            before = dim if _argument(node, "keepdim") else kept[dim]
            return [(x, before)] if before not in over else None
        return None

    def linear_inputs_of_part(self, split: Any, dim: int) -> list[_Value] | None:
        if not isinstance(split, Node) or not _is_one(split, *_SPLITS):
            return None
        x = split.args[0]
        assert isinstance(x, Node)
        along = int(_argument(split, "dim")) % len(_shape(x))
        before = dim + (_name_of(split) == "aten::unbind" and dim >= along)
        return [(x, before)] if before != along else None

    def aligned(self, operand: Any, dim: int, shape: list[int]) -> _Value:
        """Returns the value of an operand that has the features of the sum."""
        if isinstance(operand, Node):
            at = dim - (len(shape) - len(_shape(operand)))
            if at >= 0 and _shape(operand)[at] == shape[dim]:
                return operand, at
            raise Unfit(f"{self.text(operand)} adds the same number to all features of its input")
        raise Unfit(f"the number {operand} is added to its input")

    def scaled(self, node: Node, dim: int) -> list[_Value] | None:
        """Returns the factor with features, if all others have one number for all features."""
        operands = list(node.args[:2])
        shape = _shape(node)

        def has_features(operand: Any) -> bool:
            if not isinstance(operand, Node):
                return False
            at = dim - (len(shape) - len(_shape(operand)))
            return at >= 0 and _shape(operand)[at] == shape[dim]

        with_features = [one for one in operands if has_features(one)]
        if len(with_features) != 1:
            return None
        if "div" in _name_of(node) and with_features[0] is not operands[0]:
            return None
        return [self.aligned(with_features[0], dim, shape)]

    def is_off(self, node: Node) -> bool:
        """Returns True for dropout that changes nothing now."""
        rate, training = float(node.args[1]), bool(node.args[2])  # type: ignore[arg-type]
        if rate == 0:
            return True
        if training:
            raise Unfit(f"{self.text(node)} is active: call model.eval() before")
        path = self.path_of(node)
        if path not in self.rewrite.dropouts:
            self.rewrite.dropouts.append(path)
        return True

    def add_norm(self, node: Node, dim: int) -> None:
        """Handles a norm whose result is part of the input: its own mean must be 0."""
        if dim != len(_shape(node)) - 1:
            raise Unfit(f"{self.text(node)} normalizes another dimension")
        weight, bias = _argument(node, "weight"), _argument(node, "bias")
        if weight is not None:
            if weight not in self.tensors:
                raise Unfit(f"the weight of {self.text(node)} is computed")
            gains = self.tensors[weight][1]
            if not bool((gains == gains.flatten()[0]).all()):
                raise Unfit(
                    f"{self.text(node)} is in the residual stream, and its weight differs among "
                    "the features (post-norm)"
                )
        if bias is None or self.module_of(node) in self.chosen:
            return  # a chosen norm loses its bias
        if bias not in self.tensors:
            raise Unfit(f"the bias of {self.text(node)} is computed")
        if bool((self.tensors[bias][1] != 0).any()):
            self.centre(bias, 0)

    # Forward: the readers of a value that gets another mean.

    def centre(self, tensor: Node, dim: int) -> None:
        """Adds a tensor to centre, and checks everything that uses it."""
        name, values = self.tensors[tensor]
        known = self.rewrite.centred.setdefault(name, dim)
        if known != dim:
            raise Unfit(f"{name} has its features in two dimensions")
        if name in self.checked:
            return
        self.checked.add(name)
        if values.dtype not in (torch.float32, torch.float64):
            raise Unfit(f"{name} has type {values.dtype}, which cannot hold the centred values")
        for node, (_, other) in self.tensors.items():
            if other is not values:
                continue
            for user in node.users:
                if _is_one(user, *_CHECKS):
                    continue
                at = self.written_by(user, node, dim)
                if at is not None:
                    self.check_readers((user, at))
                elif _is_one(user, *_LAYER_NORMS) or self.result_dim((node, dim), user) is not None:
                    self.check_reader((node, dim), user)
                else:
                    raise Unfit(f"{name} is also used by {self.text(user)} (tied weights)")

    def written_by(self, node: Node, tensor: Node, dim: int) -> int | None:
        """Returns the features' dimension of the node's result, if the tensor writes them."""
        if node.op != "call_function":
            return None
        for at in range(len(_shape(node))):
            written = self.writers(node, at)
            if written is not None and (tensor, dim) in written:
                return at
        return None

    def check_readers(self, value: _Value) -> None:
        """Checks that only norms, and sums that end in norms, read the value."""
        if value in self.shifted:
            return
        self.shifted.add(value)
        for user in value[0].users:
            self.check_reader(value, user)

    def check_reader(self, value: _Value, user: Node) -> None:
        node, dim = value
        refusal = f"{self.text(user)} reads the residual stream without a norm"
        if _is_one(user, *_CHECKS):
            return
        if user.op != "call_function":
            raise Unfit(refusal)
        if _is_one(user, *_LAYER_NORMS):
            shape = _argument(user, "normalized_shape")
            if (
                user.args[0] is node
                and dim == len(_shape(node)) - 1
                and (shape is None or len(shape) == 1)
                and all(one is not node for one in user.args[1:])
            ):
                return
            raise Unfit(refusal)
        if _is_one(user, *_SPLITS):
            for part in user.users:
                self.follow(value, part, refusal)
            return
        self.follow(value, user, refusal)

    def follow(self, value: _Value, user: Node, refusal: str) -> None:
        if _is_one(user, *_SUMS) and user.args[0] is user.args[1]:
            raise Unfit(refusal)
        at = self.result_dim(value, user)
        if at is None:
            raise Unfit(refusal)
        self.check_readers((user, at))

    def result_dim(self, value: _Value, user: Node) -> int | None:
        """Returns the features' dimension of the user's result, a linear operation."""
        if _is_one(user, "aten::dropout"):
            self.is_off(user)  # says so if it is active
        for at in range(len(_shape(user))):
            try:
                inputs = self.linear_inputs(user, at)
            except Unfit:
                # Another operand has one number for all features: it shifts the mean, too.
                inputs = [value] if self.is_operand(value, user, at) else None
            if inputs is not None and value in inputs:
                return at
        return None

    def is_operand(self, value: _Value, user: Node, at: int) -> bool:
        node, dim = value
        shape = _shape(user)
        return (
            _is_one(user, *_SUMS)
            and at - (len(shape) - len(_shape(node))) == dim
            and _shape(node)[dim] == shape[at]
        )

    # Biases of norms.

    def fold_bias(self, node: Node, module: nn.Module) -> None:
        bias = _argument(node, "bias")
        if bias is None:
            return
        if bias not in self.tensors:
            raise Unfit("its bias is computed")
        name, values = self.tensors[bias]
        if not bool((values != 0).any()):
            return
        for reader in self.linear_readers((node, len(_shape(node)) - 1)):
            self.fold(name, values, reader)

    def linear_readers(self, value: _Value) -> Iterator[Node]:
        """Yields the linear layers that read the value."""
        node, dim = value
        for user in node.users:
            if _is_one(user, *_CHECKS):
                continue
            if _is_one(user, "aten::linear") and user.args[0] is node and dim == _last(node):
                yield user
            elif _is_one(user, "aten::addmm", "aten::mm", "aten::matmul"):
                position = 1 if _is_one(user, "aten::addmm") else 0
                weight: Any = user.args[position + 1]
                is_input = user.args[position] is node and dim == _last(node)
                if not is_input or len(_shape(weight)) != 2:
                    raise self.cannot_fold(user)
                yield user
            elif _is_one(user, *_RESHAPES, "aten::transpose", "aten::t", "aten::permute",
                         "aten::expand", "aten::dropout", *_ALONG):  # fmt: skip
                at = self.result_dim(value, user)
                if at is None:
                    raise self.cannot_fold(user)
                yield from self.linear_readers((user, at))
            else:
                raise self.cannot_fold(user)

    def cannot_fold(self, node: Node) -> Unfit:
        return Unfit(
            f"{self.text(node)} reads its result, and RMSNorm has no bias: only linear layers can "
            "take it over"
        )

    def fold(self, norm: str, values: Tensor, node: Node) -> None:
        """Adds the fold of a norm's bias into the layer of the node."""
        if _is_one(node, "aten::linear"):
            weight, bias, inputs = node.args[1], _argument(node, "bias"), 1
        elif _is_one(node, "aten::addmm") and not node.kwargs:
            weight, bias, inputs = node.args[2], node.args[0], 0
        elif _is_one(node, "aten::addmm"):
            raise self.cannot_fold(node)
        else:
            weight, bias, inputs = node.args[1], None, 0
        path = self.path_of(node)
        if not isinstance(weight, Node) or weight not in self.tensors:
            raise Unfit(f"the weight of {self.text(node)} is computed")
        weight_name, weight_values = self.tensors[weight]
        bias_name = None
        if bias is not None:
            if bias not in self.tensors:
                raise Unfit(f"the bias of {self.text(node)} is computed")
            bias_name = self.tensors[bias][0]
        fold = _Fold(norm, weight_name, inputs, bias_name, path)
        if fold in self.rewrite.folds:
            return
        layer = self.module_of(node)
        if bias_name is None and (
            type(layer) is not nn.Linear or layer.weight is not weight_values
        ):
            raise Unfit(f"{self.text(node)} has no bias that could take over its bias")
        owned = [node for node, (_, one) in self.tensors.items() if one is values]
        # Every call of the layer must read this norm, and every use of its bias be such a call.
        for other in self.nodes:
            if other.op != "call_function" or other is node:
                continue
            uses_bias = bias is not None and bias in other.all_input_nodes
            calls_layer = bias is None and self.path_of(other) == path and weight in other.args
            if not uses_bias and not calls_layer:
                continue
            source = self.norm_read_by(other)
            if weight_values is not self.weight_read_by(other):
                raise Unfit(f"{self.text(other)} shares the bias of {path}")
            if source is None or _argument(source, "bias") not in owned:
                raise Unfit(f"{self.text(node)} also reads something else than this norm")
        for known in self.rewrite.folds:
            if known.layer == path and known.bias == bias_name and known.weight == weight_name:
                raise Unfit(f"{self.text(node)} reads two norms")
        self.rewrite.folds.append(fold)

    def weight_read_by(self, node: Node) -> Tensor | None:
        position = {"aten::linear": 1, "aten::addmm": 2}.get(_name_of(node), 1)
        weight = node.args[position] if position < len(node.args) else None
        return self.tensors[weight][1] if weight in self.tensors else None  # type: ignore[index]

    def norm_read_by(self, node: Node) -> Node | None:
        """Returns the norm whose result a linear layer reads."""
        x: Any = node.args[1 if _is_one(node, "aten::addmm") else 0]
        dim = _last(x) if isinstance(x, Node) else 0
        while isinstance(x, Node) and x.op == "call_function":
            if _is_one(x, *_LAYER_NORMS):
                return x if self.module_of(x) in self.chosen else None
            inputs = self.linear_inputs(x, dim)
            if inputs is None or len(inputs) != 1 or _is_one(x, "aten::mul", "aten::div"):
                return None
            x, dim = inputs[0]
        return None

    def check_memory(self) -> None:
        """Raises Unfit if another tensor shares memory with one that changes."""
        changed = {*self.rewrite.centred, *(f.bias for f in self.rewrite.folds if f.bias)}
        every = [
            *self.model.named_parameters(remove_duplicate=False),
            *self.model.named_buffers(remove_duplicate=False),
        ]
        tensors = dict(every)
        for name in changed:
            mine = tensors[name]
            for other_name, other in every:
                if other is not mine and _overlap(mine, other):
                    raise Unfit(f"{name} shares memory with {other_name}")


def _overlap(a: Tensor, b: Tensor) -> bool:
    if a.device != b.device or a.numel() == 0 or b.numel() == 0 or a.is_meta:
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _last(node: Node) -> int:
    return len(_shape(node)) - 1


def _same_place(shape: list[int], dim: int, before: list[int]) -> int | None:
    """Returns the dimension of `before` with the elements of `dim`, for a change of shape."""
    outer = math.prod(shape[:dim])
    for at, size in enumerate(before):
        if size == shape[dim] and math.prod(before[:at]) == outer:
            return at
    return None
