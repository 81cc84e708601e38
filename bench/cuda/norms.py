"""Norms: Planish against a copy of the same bytes, PyTorch (eager, compiled) and other installed
libraries."""

import importlib.util

COLS = (256, 512, 768, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
ODD = (769, 1001, 4095)
QUICK = (256, 1024, 8192, 769)
BYTES = 1 << 29  # of an array: much larger than the caches
NORMS = ("layer_norm", "rms_norm")
MODES = ("forward", "backward")
TYPES = ("float32", "bfloat16")
PACKAGES = {"liger": "liger_kernel", "quack": "quack"}  # contestants that may be installed


def triton_forward():
    """Layer norm of rows in Triton as its users write it: a program per row, with the row in
    registers."""
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x_ptr, y_ptr, weight_ptr, bias_ptr, cols, eps, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, block)
        inside = at < cols
        x = tl.load(x_ptr + row * cols + at, mask=inside, other=0.0).to(tl.float32)
        d = tl.where(inside, x - tl.sum(x, axis=0) / cols, 0.0)
        rstd = 1 / tl.sqrt(tl.sum(d * d, axis=0) / cols + eps)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + at, mask=inside, other=0.0).to(tl.float32)
        y = d * rstd * weight + bias
        tl.store(y_ptr + row * cols + at, y.to(y_ptr.dtype.element_ty), mask=inside)

    def run(x, weight, bias, y):
        cols = x.shape[1]
        block = triton.next_power_of_2(cols)
        warps = min(max(block // 256, 1), 16)
        kernel[(x.shape[0],)](x, y, weight, bias, cols, 1e-5, block=block, num_warps=warps)
        return y

    return run


class NormCase:
    """Inputs of a norm on the device, and the calls of each contestant."""

    def __init__(self, norm, mode, dtype, cols):
        import torch

        self.norm, self.mode, self.dtype, self.cols = norm, mode, dtype, cols
        self.type = getattr(torch, dtype)
        self.rows = BYTES // self.type.itemsize // cols
        make = lambda *sizes: torch.randn(sizes, device="cuda", dtype=self.type)  # noqa: E731
        self.x, self.dy = make(self.rows, cols), make(self.rows, cols)
        self.weight, self.bias = 1 + make(cols) / 4, make(cols) / 4

    def __str__(self):
        return f"{self.norm} {self.mode} {self.dtype} {self.rows}x{self.cols}"

    def about(self):
        return {"norm": self.norm, "mode": self.mode, "type": self.dtype, "rows": self.rows, "cols": self.cols,
                "bytes": self.bytes}  # fmt: skip

    @property
    def bytes(self):
        """Returns the bytes read and written: x and y, or x, dy and dx."""
        return (2 if self.mode == "forward" else 3) * self.x.nbytes

    def copy(self):
        """Returns a call that reads and writes the same number of bytes as the norm."""
        import torch

        n = self.bytes // 2 // self.type.itemsize
        source, target = (torch.empty(n, device="cuda", dtype=self.type) for _ in range(2))
        source.zero_()
        return lambda: target.copy_(source)

    def function(self, who):
        import torch
        from torch import nn

        import planish

        shape = (self.cols,)
        if self.norm == "layer_norm":
            own, theirs = planish.functional.layer_norm, nn.functional.layer_norm
            call = {"planish": lambda x, w, b: own(x, shape, w, b), "eager": lambda x, w, b: theirs(x, shape, w, b)}
        else:
            own, theirs = planish.functional.rms_norm, nn.functional.rms_norm
            call = {"planish": lambda x, w, b: own(x, shape, w, 1e-5), "eager": lambda x, w, b: theirs(x, shape, w, 1e-5)}
        torch.compiler.reset()  # after eight shapes, torch.compile would run further ones eagerly
        call["compile"] = torch.compile(call["eager"], dynamic=False)
        if who == "quack":
            from quack import rmsnorm

            return lambda x, w, b: rmsnorm(x, w, eps=1e-5)
        if who == "liger":
            from liger_kernel.ops.layer_norm import LigerLayerNormFunction
            from liger_kernel.ops.rms_norm import LigerRMSNormFunction

            if self.norm == "rms_norm":  # in place it would overwrite dy
                return lambda x, w, b: LigerRMSNormFunction.apply(x, w, 1e-5, 0.0, "llama", False)
            return lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5)
        return call[who]

    def quack_layer_norm(self):
        """Returns a call of quack's layer norm, which has no autograd and takes float parameters."""
        from quack.rmsnorm import layernorm_bwd, layernorm_fwd

        weight, bias = self.weight.float(), self.bias.float()
        if self.mode == "forward":
            return lambda: [layernorm_fwd(self.x, weight, bias, eps=1e-5)]
        _, rstd, mean = layernorm_fwd(self.x, weight, bias, eps=1e-5, return_rstd=True, return_mean=True)
        return lambda: layernorm_bwd(self.x, weight, self.dy, rstd, mean, has_bias=True)

    def call(self, who):
        """Returns a function without arguments that returns the results to check."""
        import torch

        if who == "copy":
            return self.copy()
        if who == "triton":
            run, y = triton_forward(), torch.empty_like(self.x)
            return lambda: [run(self.x, self.weight, self.bias, y)]
        if who == "quack" and self.norm == "layer_norm":
            return self.quack_layer_norm()
        function = self.function(who)
        if self.mode == "forward":
            return lambda: [function(self.x, self.weight, self.bias)]
        # The graph is kept, so that only backward is timed.
        inputs = [t.detach().clone().requires_grad_() if t is not self.x else t.detach().requires_grad_()
                  for t in (self.x, self.weight, self.bias)]  # fmt: skip
        if self.norm == "rms_norm":
            inputs = inputs[:2]
        y = function(*inputs, *([None] if self.norm == "rms_norm" else []))
        return lambda: torch.autograd.grad(y, inputs, self.dy, retain_graph=True)

    def contestants(self):
        who = ["copy", "planish", "eager", "compile"]
        if self.mode == "forward" and self.norm == "layer_norm" and self.cols <= 65536 // self.type.itemsize * 2:
            who.append("triton")
        who += [name for name, package in PACKAGES.items() if importlib.util.find_spec(package)]
        return who

    def wrong(self, who, call):
        """Returns the error of a contestant's results, or "". The reference is eager in double."""
        import torch

        if who == "copy":
            return ""
        rows = slice(0, 256)
        x, dy = self.x[rows].double().requires_grad_(), self.dy[rows].double()
        shape, weight, bias = (self.cols,), self.weight.double(), self.bias.double()
        if self.norm == "layer_norm":
            y = torch.nn.functional.layer_norm(x, shape, weight, bias)
        else:
            y = torch.nn.functional.rms_norm(x, shape, weight, 1e-5)
        expected = y.detach() if self.mode == "forward" else torch.autograd.grad(y, x, dy)[0]
        error = (call()[0][rows].double() - expected).abs().max().item()
        tolerance = expected.abs().max().item() * (2e-2 if self.type.itemsize == 2 else 1e-4)
        return "" if error <= tolerance else f"off by {error:.3g}, more than rounding: {tolerance:.3g}"


def cases(quick):
    """Returns functions that make the cases, which need much memory."""
    return [lambda case=(norm, mode, dtype, cols): NormCase(*case) for norm in NORMS for mode in MODES
            for dtype in TYPES for cols in (QUICK if quick else COLS + ODD)]  # fmt: skip
