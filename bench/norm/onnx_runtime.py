"""ONNX Runtime: LayerNormalization of a session on the CPU, with inputs and output bound in place.

It has its own thread pool. Its inference package has no backward direction."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from peer import Absent, main


def model():
    tensor = helper.make_tensor_value_info
    rows, cols = ["rows", "cols"], ["cols"]
    node = helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["out"], axis=-1, epsilon=1e-5)
    graph = helper.make_graph(
        [node], "layer_norm",
        [tensor("x", TensorProto.FLOAT, rows), tensor("gain", TensorProto.FLOAT, cols),
         tensor("bias", TensorProto.FLOAT, cols)],
        [tensor("out", TensorProto.FLOAT, rows)])  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def make(case, method):
    if method != "layer":
        raise Absent("is measured only for layer norm")
    if case.direction != "forward":
        raise Absent("has no backward direction")
    if case.type != "float":
        raise Absent("is measured only in float")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.threads
    session = onnxruntime.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name in ("x", "gain", "bias"):
        array = getattr(case, name)
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    binding.bind_output("out", "cpu", 0, np.float32, case.out.shape, case.out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


if __name__ == "__main__":
    main("onnxruntime", make)
