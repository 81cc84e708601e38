"""Conversion of the weights of layer-normalized recurrent layers from and to other libraries.

Each layout has a module with functions that load (into a `Converted`) and save:

- `kiros`: the `.npz` files of the layer-norm, order-embedding and skip-thoughts repositories;
- `paper`: the notation of Ba, Kiros & Hinton 2016, with its gate order and update gate;
- `haste`: LayerNormLSTM of lmnt's haste;
- `fastrnns`: LayerNormLSTMCell of PyTorch's fastrnns benchmark, alone or in a stack;
- `tensorflow`: LayerNormLSTMCell of TensorFlow Addons, LayerNormBasicLSTMCell of contrib.

No function runs code from a file: `.npz` files are read without pickle, and files of other formats
are opened by the caller.
"""

from planish.converters import fastrnns, haste, kiros, paper, tensorflow
from planish.converters._base import Converted

__all__ = ["Converted", "fastrnns", "haste", "kiros", "paper", "tensorflow"]
