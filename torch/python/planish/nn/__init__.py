"""Norms and recurrent layers as modules, with the interfaces of ``torch.nn``."""

from planish.nn.groups import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from planish.nn.initialization import reset_recurrent_parameters
from planish.nn.nnet import NNet, nnet
from planish.nn.norms import (
    AdaNorm,
    BatchNorm1d,
    BatchNorm2d,
    DetachNorm,
    LayerNorm,
    LayerNorm1d,
    LayerNorm2d,
    LayerNormSimple,
    OnlineLayerNorm,
    RecurrentBatchNorm,
    RMSNorm,
    RowNorm,
    WeightNorm,
    weight_norm,
)
from planish.nn.pointwise import Derf, DyT
from planish.nn.recurrent import (
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LayerNormRNN,
    LayerNormRNNCell,
)

__all__ = [
    "AdaNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "Derf",
    "DetachNorm",
    "DyT",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LayerNorm1d",
    "LayerNorm2d",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LayerNormRNN",
    "LayerNormRNNCell",
    "LayerNormSimple",
    "NNet",
    "OnlineLayerNorm",
    "RMSNorm",
    "RecurrentBatchNorm",
    "RowNorm",
    "WeightNorm",
    "nnet",
    "reset_recurrent_parameters",
    "weight_norm",
]
