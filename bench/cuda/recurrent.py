"""Recurrent layers: Planish, directly and in a CUDA graph, against three alternatives. These are
cuDNN's layers without a norm, the layer composed of PyTorch's operators, and only the GEMMs."""

import functools

DEVICE = "cuda"
# T, B, H; the number of inputs is H.
SHAPES = ((1024, 16, 768), (256, 64, 512), (100, 8, 400))
CELLS = ("ln_lstm", "ln_gru")
MODES = ("forward", "training")
TYPES = ("float32", "bfloat16")
CHECKED = 48  # steps: few enough that one rounding error does not spread to everything


def modules():
    """Returns composed layers with Planish's parameters, as users write them: one operator after
    another, step by step."""
    import torch
    from torch import nn

    def norm(z, weight, bias):
        return nn.functional.layer_norm(z, z.shape[-1:], weight, bias)

    def lstm(x, p):
        h = c = x.new_zeros(x.shape[1], p["weight_hh_l0"].shape[1])
        gates = norm(x @ p["weight_ih_l0"].t(), p["ln_ih_weight_l0"], p["ln_ih_bias_l0"])
        bias, outputs = p["bias_ih_l0"], []
        for step in gates.unbind(0):
            z = step + norm(h @ p["weight_hh_l0"].t(), p["ln_hh_weight_l0"], p["ln_hh_bias_l0"]) + bias
            i, f, g, o = z.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * norm(c, p["ln_c_weight_l0"], p["ln_c_bias_l0"]).tanh()
            outputs.append(h)
        return torch.stack(outputs)

    def gru(x, p):
        hidden = p["weight_hh_l0"].shape[1]
        h = x.new_zeros(x.shape[1], hidden)
        both = lambda z, name: torch.cat([norm(part, p[f"ln_{name}_weight_l0"][at], p[f"ln_{name}_bias_l0"][at])  # noqa: E731
                                          for part, at in ((z[..., : 2 * hidden], slice(0, 2 * hidden)),
                                                           (z[..., 2 * hidden :], slice(2 * hidden, None)))], -1)  # fmt: skip
        outputs = []
        for step in both(x @ p["weight_ih_l0"].t(), "ih").unbind(0):
            a, b = step.split([2 * hidden, hidden], -1)
            s, n = both(h @ p["weight_hh_l0"].t(), "hh").split([2 * hidden, hidden], -1)
            r, z = (a + s).sigmoid().chunk(2, -1)
            h = (1 - z) * (b + r * n).tanh() + z * h
            outputs.append(h)
        return torch.stack(outputs)

    return {"ln_lstm": lstm, "ln_gru": gru}


class RecurrentCase:
    """Inputs and parameters of a layer on the device, and the calls of each contestant."""

    def __init__(self, cell, mode, dtype, shape):
        import torch
        from torch import nn

        import planish

        self.cell, self.mode, self.dtype, self.shape = cell, mode, dtype, shape
        self.type = getattr(torch, dtype)
        time, batch, hidden = shape
        torch.manual_seed(1)
        own, theirs = (planish.nn.LayerNormLSTM, nn.LSTM) if cell == "ln_lstm" else (planish.nn.LayerNormGRU, nn.GRU)
        self.own, self.plain = (m(hidden, hidden).to(DEVICE, self.type) for m in (own, theirs))
        self.x = torch.randn(time, batch, hidden, device=DEVICE, dtype=self.type)
        self.dy = torch.randn_like(self.x)

    def __str__(self):
        return f"{self.cell} {self.mode} {self.dtype} {'x'.join(map(str, self.shape))}"

    def about(self):
        return {"cell": self.cell, "mode": self.mode, "type": self.dtype, "shape": list(self.shape)}

    def contestants(self):
        return ["products", "planish", "graph", "cudnn", "composed"]

    def function(self, who):
        """Returns a function from x and parameters to y, and the parameters."""
        module = self.plain if who == "cudnn" else self.own
        if who == "composed":
            return lambda x: modules()[self.cell](x, dict(module.named_parameters())), module
        return lambda x: module(x)[0], module

    def products(self):
        """Returns a call of the GEMMs that all layers of this size need, step by step."""
        import torch

        time, batch, hidden = self.shape
        w = self.plain.weight_hh_l0.detach()
        w_ih, g = self.plain.weight_ih_l0.detach(), w.shape[0]
        h, zh = self.x[0], self.x.new_empty(batch, g)
        dz, dh = self.x.new_ones(time * batch, g), self.x.new_empty(batch, hidden)

        def run():
            results = [self.x @ w_ih.t()]
            for _ in range(time):
                torch.mm(h, w.t(), out=zh)
            if self.mode == "training":
                for t in range(time):
                    torch.mm(dz[t * batch : (t + 1) * batch], w, out=dh)
                flat = self.x.view(-1, hidden)
                results += [dz.t() @ flat, dz.t() @ flat, dz @ w_ih]
            return results

        return run

    def graph(self):
        """Returns Planish's call as a CUDA graph, without a CPU launch for each kernel."""
        import torch

        call, side = self.call("planish"), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # one-time initialization must not be captured
            call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = call()

        def run():
            graph.replay()
            return results

        return run

    def call(self, who):
        import torch

        if who == "graph":
            return self.graph()
        if who == "products":
            return self.products()
        function, module = self.function(who)
        if self.mode == "forward":

            def forward():
                with torch.no_grad():
                    return [function(self.x)]

            return forward
        x = self.x.detach().requires_grad_()
        wanted = [x, *module.parameters()]

        def training():
            y = function(x)
            return [y.detach(), *torch.autograd.grad(y, wanted, self.dy)]

        return training

    def wrong(self, who, call):
        """Returns the error of a contestant's results, or "". The reference is the composed layer
        in double: its first steps and, for a sequence that ends with them, its gradients."""
        import torch

        if who in ("products", "cudnn"):
            return ""
        tolerance = 2e-3
        if self.type.itemsize == 2:  # the composed layer rounds after each operator
            tolerance = 2e-1 if who == "composed" else 5e-2
        params = {k: p.detach().double().requires_grad_() for k, p in self.own.named_parameters()}
        x = self.x[:CHECKED].double().requires_grad_()
        y = modules()[self.cell](x, params)
        check = functools.partial(self.difference, tolerance=tolerance)
        if text := check("y", call()[0][:CHECKED], y.detach()):
            return text
        if self.mode == "forward":
            return ""
        dy = self.dy[:CHECKED]
        expected = torch.autograd.grad(y, [x, *params.values()], dy.double())
        function, module = self.function(who)
        short = self.x[:CHECKED].detach().requires_grad_()
        found = torch.autograd.grad(function(short), [short, *module.parameters()], dy)
        for name, f, e in zip(["dx", *params], found, expected, strict=True):
            if text := check(name, f, e):
                return text
        return ""

    @staticmethod
    def difference(name, found, expected, tolerance):
        error = (found.double() - expected).abs().max().item()
        limit = tolerance * expected.abs().max().item()
        return "" if error <= limit else f"{name} is off by {error:.3g}, more than rounding: {limit:.3g}"


def cases(quick):
    """Returns functions that make the cases."""
    return [lambda case=(cell, mode, dtype, shape): RecurrentCase(*case)
            for cell in (CELLS[:1] if quick else CELLS) for mode in MODES for dtype in TYPES
            for shape in (SHAPES[:1] if quick else SHAPES)]  # fmt: skip
