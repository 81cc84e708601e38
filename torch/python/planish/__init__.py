"""Layer normalization and related norms, and recurrent layers with them, for PyTorch.

>>> import torch, planish
>>> lstm = planish.nn.LayerNormLSTM(8, 16, num_layers=2)  # same interface as torch.nn.LSTM
>>> y, (h_n, c_n) = lstm(torch.randn(5, 3, 8))
>>> y.shape, h_n.shape
(torch.Size([5, 3, 16]), torch.Size([2, 3, 16]))

Importing the package loads the operators, ``torch.ops.planish``, from the library for the PyTorch in
use, such as ``libplanish_torch-2.13.so``. To load them from another library than the package's, set
``PLANISH_LIBRARY`` to its path.
"""

from planish import _library, _subclasses

__version__ = _library.load(__path__)
_subclasses.register()

# These modules need the operators.
from planish import converters, export, functional, nn  # noqa: E402
from planish._convert import Change, Conversion, Left, convert  # noqa: E402
from planish._memory import keep_freed_memory  # noqa: E402
from planish._version import VersionInfo, version_info  # noqa: E402
from planish.analysis import gradient_statistics, invariances  # noqa: E402

__all__ = [
    "Change",
    "Conversion",
    "Left",
    "VersionInfo",
    "__version__",
    "convert",
    "converters",
    "export",
    "functional",
    "gradient_statistics",
    "invariances",
    "keep_freed_memory",
    "nn",
    "version_info",
]
