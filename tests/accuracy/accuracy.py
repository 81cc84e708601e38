"""How far layer norms are off: Planish on every instruction set, and whatever else is installed.

Writes the tables between the marks of docs/accuracy.md. `make accuracy` runs it.

All get the same float32 rows, and are held against their normalization in float64, which is exact to
nine digits more. PyTorch, ONNX Runtime and JAX are measured where Python finds them, oneDNN where
CMake did.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

EPS = 1e-5
FORWARD, BACKWARD = "forward", "backward"


# --- The implementations: each gives y, dx, dgain of x and dy, with a gain of ones ---


def run(program, *arguments, **options):
    return subprocess.run(
        [program, *map(str, arguments)], check=True, text=True, stdout=subprocess.PIPE, **options
    ).stdout


class Program:
    """A program that takes a file and gives one."""

    def __init__(self, path, *last, environment=None):
        self.path, self.last, self.environment = path, last, environment

    def __call__(self, x, dy):
        with tempfile.TemporaryDirectory() as folder:
            given, taken = (pathlib.Path(folder) / name for name in ("in", "out"))
            given.write_bytes(x.tobytes() + dy.tobytes())
            run(self.path, "apply", given, taken, *x.shape, *self.last, env=self.environment)
            out = np.fromfile(taken, np.float32)
        y, dx, dgain, _ = np.split(out, [x.size, 2 * x.size, 2 * x.size + x.shape[1]])
        return y.reshape(x.shape), dx.reshape(x.shape), dgain


def torch_layer_norm(compiled):
    import torch

    def call(x, gain, bias):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, bias, EPS)

    function = torch.compile(call, dynamic=False) if compiled else call

    def apply(x, dy):
        leaf = torch.tensor(x, requires_grad=True)
        gain = torch.ones(x.shape[1], requires_grad=True)
        bias = torch.zeros(x.shape[1], requires_grad=True)
        y = function(leaf, gain, bias)
        y.backward(torch.tensor(dy))
        return y.detach().numpy(), leaf.grad.numpy(), gain.grad.numpy()

    return apply


def onnx_runtime():
    import onnxruntime
    from onnx import TensorProto, helper

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    node = helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["y"], epsilon=EPS)
    graph = helper.make_graph(
        [node],
        "layer_norm",
        [value("x", ["rows", "cols"]), value("gain", ["cols"]), value("bias", ["cols"])],
        [value("y", ["rows", "cols"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )

    def apply(x, dy):
        cols = x.shape[1]
        given = {"x": x, "gain": np.ones(cols, np.float32), "bias": np.zeros(cols, np.float32)}
        return session.run(None, given)[0], None, None

    return apply


def jax_layer_norm():
    import jax
    import jax.numpy as jnp

    def layer_norm(x, gain):
        mean = jnp.mean(x, -1, keepdims=True)
        return gain * (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + EPS)

    @jax.jit
    def both(x, dy):
        y, back = jax.vjp(layer_norm, x, jnp.ones(x.shape[1], x.dtype))
        return y, *back(dy)

    return lambda x, dy: tuple(np.asarray(out) for out in both(x, dy))


def implementations(build):
    """(name, version, function) of those that are there, and the names of those that are not."""
    planish = build / "tests/accuracy/planish_accuracy"
    found, missing = [], []
    for target in run(planish, "targets").split():
        found.append((f"Planish {target}", "", Program(planish, target)))

    def add(name, make):
        try:
            found.append((name, *make()))
        except (ImportError, OSError, subprocess.CalledProcessError):
            missing.append(name)

    def torch(compiled):
        import torch

        return torch.__version__, torch_layer_norm(compiled)

    def onednn():
        program = build / "tests/accuracy/planish_accuracy_onednn"
        environment = dict(os.environ)
        runtime = pathlib.Path(sys.prefix) / "lib/libintelocl.so"  # of the package from PyPI
        if runtime.exists():
            environment.setdefault("OCL_ICD_FILENAMES", str(runtime))
        call = Program(program, environment=environment)
        call(np.ones((2, 4), np.float32), np.ones((2, 4), np.float32))
        return run(program, "version", env=environment).strip(), call

    def runtime():
        import onnxruntime

        return onnxruntime.__version__, onnx_runtime()

    def jax():
        import jax

        return jax.__version__, jax_layer_norm()

    add("PyTorch", lambda: torch(False))
    add("torch.compile", lambda: torch(True))
    add("oneDNN", onednn)
    add("ONNX Runtime", runtime)
    add("JAX", jax)
    return found, missing


# --- The rows, and what is exact ---


def noise(shape, seed, mean=0.0, scale=1.0):
    draw = np.random.default_rng(seed).standard_normal(shape)
    return (mean + scale * draw).astype(np.float32)


def constant(shape, value):
    return np.full(shape, value, np.float32)


def with_outlier(shape, seed, value):
    x = noise(shape, seed)
    x[:, shape[1] // 2] = value
    return x


SHAPE = (128, 1024)
CASES = [
    *[(f"mean {mean}", noise(SHAPE, 1, float(mean))) for mean in ("0", "1e2", "1e4", "1e6", "1e7")],
    ("width 7, mean 1e4", noise((128, 7), 2, 1e4)),
    ("width 65,536, mean 1e4", noise((4, 65536), 3, 1e4)),
    ("scale 1e30", noise(SHAPE, 5, 0, 1e30)),
    ("one number of 1e4 in front of noise", with_outlier(SHAPE, 6, 1e4)),
    ("constant 1234.567", constant(SHAPE, 1234.567)),
    ("constant 1e6", constant(SHAPE, 1e6)),
    ("width 1, mean 1e6", noise((128, 1), 7, 1e6)),
]


def exact(x, dy):
    """xhat, dx, rstd * max|dy| a row, and dgain, in float64."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    d = x - x[:, :1]
    d -= d.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((d * d).mean(1, keepdims=True) + EPS)
    xhat = d * rstd
    dx = rstd * (dy - dy.mean(1, keepdims=True) - xhat * (dy * xhat).mean(1, keepdims=True))
    return xhat, dx, rstd * np.abs(dy).max(1, keepdims=True), (dy * xhat).sum(0)


def errors(x, dy, outputs):
    """Returns the errors of y over max(1, |xhat|), of dx over its largest term, of dgain over max(1, |dgain|)."""
    xhat, dx, term, dgain = exact(x, dy)
    y, their_dx, their_dgain = outputs
    of = {FORWARD: np.max(np.abs(y - xhat) / np.maximum(1, np.abs(xhat)))}
    if their_dx is not None:
        of["dx"] = np.max(np.abs(their_dx - dx) / term)
        of["dgain"] = np.max(np.abs(their_dgain - dgain)) / max(1, np.abs(dgain).max())
    return of


# --- The tables ---


def cell(value):
    if value is None:
        return "-"
    if not np.isfinite(value):
        return "not finite"
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def table(names, rows):
    lines = ["| rows | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {case} | " + " | ".join(cells) + " |" for case, cells in rows]
    return "\n".join(lines)


def measure(found):
    forward, backward = [], []
    for case, x in CASES:
        dy = noise(x.shape, 11)
        y_cells, dx_cells = [], []
        for _, _, function in found:
            with np.errstate(all="ignore"):
                of = errors(x, dy, function(x, dy))
            y_cells.append(cell(of[FORWARD]))
            both = (cell(of[name]) for name in ("dx", "dgain")) if "dx" in of else None
            dx_cells.append(", ".join(both) if both else "-")
        forward.append((case, y_cells))
        backward.append((case, dx_cells))
    return forward, backward


def replace(text, mark, content):
    pattern = re.compile(f"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"the document has no mark <!-- {mark} -->")
    return pattern.sub(lambda match: f"{match[1]}\n{content.strip()}\n\n{match[2]}", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="CMake's folder")
    parser.add_argument("--document", type=pathlib.Path, required=True, help="docs/accuracy.md")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    found, missing = implementations(build)
    forward, backward = measure(found)
    names = [name for name, _, _ in found]
    versions = ", ".join(f"{name} {version}" for name, version, _ in found if version)
    note = f"Measured with {versions or 'nothing beside Planish'}."
    if missing:
        note += f" Not installed: {', '.join(missing)}."
    text = arguments.document.read_text()
    text = replace(text, "versions", note)
    text = replace(text, FORWARD, table(names, forward))
    trained = [i for i, name in enumerate(names) if name != "ONNX Runtime"]
    text = replace(
        text,
        BACKWARD,
        table(
            [names[i] for i in trained],
            [(case, [cells[i] for i in trained]) for case, cells in backward],
        ),
    )
    text = replace(text, "norms", run(build / "tests/accuracy/planish_accuracy"))
    weights = pathlib.Path(__file__).with_name("weights.py")
    package = {**os.environ, "PYTHONPATH": str(build / "python")}
    text = replace(text, "weights", run(sys.executable, weights, env=package))
    arguments.document.write_text(text)


if __name__ == "__main__":
    main()
