"""torch.compile: layer norm and its backward, compiled for each shape, with outputs given.

Compiled code returns new tensors; the copies into the given outputs are compiled into the same
loops. Its times include the call from Python, about ten microseconds, which is part of its cost.
"""

import torch
from peer import Absent, main

EPS = 1e-5


def forward(x, gain, bias, out):
    out.copy_(torch.nn.functional.layer_norm(x, x.shape[1:], gain, bias, EPS))


def backward(dy, x, mean, rstd, gain, bias, out, dgain, dbias):
    results = torch.ops.aten.native_layer_norm_backward(
        dy, x, x.shape[1:], mean[:, None], rstd[:, None], gain, bias, [True, True, True])
    for given, result in zip((out, dgain, dbias), results):
        given.copy_(result)


def make(case, method):
    if method != "layer":
        raise Absent("is measured only for layer norm")
    torch.set_num_threads(case.threads)
    torch._dynamo.reset()  # code is specific to a shape and a number of threads
    names = ["x", "gain", "bias", "out"]
    if case.direction == "backward":
        names = ["dy", "x", "mean", "rstd", "gain", "bias", "out", "dgain", "dbias"]
    tensors = [torch.from_numpy(getattr(case, name)) for name in names]
    compiled = torch.compile(forward if case.direction == "forward" else backward, dynamic=False)

    def call():
        with torch.inference_mode():
            compiled(*tensors)

    return call


if __name__ == "__main__":
    main("compile", make)
