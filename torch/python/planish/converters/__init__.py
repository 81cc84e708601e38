"""Conversion of the weights of layer-normalized recurrent layers from and to other libraries.

Each layout has a module with functions that load (into a `Converted`) and save:

- `kiros`: the `.npz` files of the layer-norm, order-embedding and skip-thoughts repositories;
- `paper`: the notation of Ba, Kiros & Hinton 2016, with its gate order and update gate;
- `haste`: LayerNormLSTM and LayerNormGRU of lmnt's haste;
- `fastrnns`: LayerNormLSTMCell of PyTorch's fastrnns benchmark, alone or in a stack, and NeMo's
  `ln_lstm`, which has the same keys;
- `torchaudio`: the LSTM of torchaudio's RNN-T;
- `dreamer`: the GRU of DreamerV3, of sheeprl and of dreamerv3-torch;
- `tensorflow`: LayerNormLSTMCell of TensorFlow Addons, LayerNormBasicLSTMCell of contrib.

No function runs code from a file: `.npz` files are read without pickle, and files of other formats
are opened by the caller.
"""

from planish.converters import dreamer, fastrnns, haste, kiros, paper, tensorflow, torchaudio
from planish.converters._base import Converted

__all__ = [
    "Converted",
    "dreamer",
    "fastrnns",
    "haste",
    "kiros",
    "paper",
    "tensorflow",
    "torchaudio",
]
