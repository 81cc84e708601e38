"""Weights of recurrent layers with layer normalisation from and to the layouts of others.

Each layout has a module, each with functions that load (to a `Converted`) and save:

- `kiros`: the `.npz` files of the layer-norm, order-embedding and skip-thoughts repositories;
- `paper`: the notation of Ba, Kiros & Hinton 2016, with its gate order and update gate;
- `haste`: LayerNormLSTM of lmnt's haste;
- `fastrnns`: LayerNormLSTMCell of PyTorch's fastrnns benchmark, alone or in a stack;
- `tensorflow`: LayerNormLSTMCell of TensorFlow Addons, LayerNormBasicLSTMCell of contrib.

None of them runs code that a file holds: `.npz` files are read without pickle, and other formats
are for the caller to open.
"""

from planish.converters import fastrnns, haste, kiros, paper, tensorflow
from planish.converters._base import Converted

__all__ = ["Converted", "fastrnns", "haste", "kiros", "paper", "tensorflow"]
