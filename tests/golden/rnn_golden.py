"""Makes rnn_golden.h: what PyTorch's nn.RNN, nn.LSTM and nn.GRU compute, forward and backward, of
padded sequences in either direction. Run it in this folder: python3 rnn_golden.py > rnn_golden.h"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

TIME, BATCH, INPUTS, HIDDEN = 4, 3, 2, 3
LENGTHS = [2, 4, 3]
MODULES = [
    ("kRnn", lambda: nn.RNN(INPUTS, HIDDEN, bidirectional=True)),
    ("kRnnRelu", lambda: nn.RNN(INPUTS, HIDDEN, nonlinearity="relu", bidirectional=True)),
    ("kLstm", lambda: nn.LSTM(INPUTS, HIDDEN, bidirectional=True)),
    ("kGru", lambda: nn.GRU(INPUTS, HIDDEN, bidirectional=True)),
]


def values_of(array, *shape):
    """Returns the values of an array by the array's number. golden_test.cc generates the same values."""
    n = torch.Size(shape).numel()
    values = [((i + 1) * 7919 + array * 104729) % 1009 / 1009 * 2 - 1 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def both(direction, array, *shape):
    """Returns [2, *shape]: the array's values for the direction, and zeros for the other direction."""
    zeros = torch.zeros(shape, dtype=torch.float64)
    values = values_of(array, *shape)
    return torch.stack([values, zeros] if direction == 0 else [zeros, values])


def case(make, direction):
    module = make().double()
    suffix = "_l0_reverse" if direction else "_l0"
    params = dict(module.named_parameters())
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    with torch.no_grad():
        for array, name in enumerate(names):
            params[name + suffix].copy_(values_of(array, *params[name + suffix].shape))
    x = values_of(4, TIME, BATCH, INPUTS).requires_grad_()
    h0 = both(direction, 5, BATCH, HIDDEN).requires_grad_()
    c0 = both(direction, 6, BATCH, HIDDEN).requires_grad_()
    lstm = isinstance(module, nn.LSTM)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    y, state = module(packed, (h0, c0) if lstm else h0)
    y, _ = pad_packed_sequence(y, total_length=TIME)
    y = y[:, :, direction * HIDDEN : (direction + 1) * HIDDEN]
    h_n, c_n = state if lstm else (state, torch.zeros_like(state))
    h_n, c_n = h_n[direction], c_n[direction]
    dy, dh, dc = (values_of(7, TIME, BATCH, HIDDEN), values_of(8, BATCH, HIDDEN), values_of(9, BATCH, HIDDEN))
    ((dy * y).sum() + (dh * h_n).sum() + (dc * c_n).sum()).backward()
    dc0 = c0.grad[direction] if lstm else torch.zeros_like(c_n)
    gradients = [params[name + suffix].grad for name in names]
    return [y, h_n, c_n, x.grad, h0.grad[direction], dc0, *gradients]


def main():
    print(f"// Made by rnn_golden.py with PyTorch {torch.__version__.split('+')[0]}.")
    print("#ifndef PLANISH_TESTS_GOLDEN_RNN_GOLDEN_H_")
    print("#define PLANISH_TESTS_GOLDEN_RNN_GOLDEN_H_\n")
    print('#include <vector>\n\n#include "planish/rnn.h"\n')
    print("namespace planish::tests {\n")
    print("struct RnnGolden {\n  Cell cell;\n  bool reverse;")
    print("  std::vector<double> y, h_n, c_n, dx, dh0, dc0;")
    print("  std::vector<double> dweight_ih, dweight_hh, dbias_ih, dbias_hh;\n};\n")
    print("// clang-format off")
    print("inline const std::vector<RnnGolden> kRnnGolden = {")
    for cell, make in MODULES:
        for direction in range(2):
            print(f"    {{Cell::{cell}, {'true' if direction else 'false'},")
            for tensor in case(make, direction):
                values = [repr(value) for value in tensor.detach().flatten().tolist()]
                lines = [", ".join(values[i : i + 4]) for i in range(0, len(values), 4)]
                print("     {" + ",\n      ".join(lines) + "},")
            print("    },")
    print("};\n// clang-format on\n")
    print("}  // namespace planish::tests\n\n#endif  // PLANISH_TESTS_GOLDEN_RNN_GOLDEN_H_")


if __name__ == "__main__":
    main()
