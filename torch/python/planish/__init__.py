"""Layer normalisation and its relatives for PyTorch.

>>> import torch, planish
>>> lstm = planish.nn.LayerNormLSTM(8, 16, num_layers=2)  # as torch.nn.LSTM
>>> y, (h_n, c_n) = lstm(torch.randn(5, 3, 8))
>>> y.shape, h_n.shape
(torch.Size([5, 3, 16]), torch.Size([2, 3, 16]))

Importing the package loads the operators, ``torch.ops.planish``. ``PLANISH_LIBRARY`` may name
another ``libplanish_torch.so`` than the package's.
"""

from planish import _library

__version__ = _library.load(__path__)

from planish import nn  # noqa: E402  its modules need the operators

__all__ = ["__version__", "nn"]
