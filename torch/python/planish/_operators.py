"""Operators that the functions and modules call."""

import torch

# Looked up once: attribute access of an operator takes longer than a small call.
_row_norm = torch.ops.planish.row_norm.default
_row_norm_names = torch.ops.planish.row_norm_names.default
_row_norm_recipe = torch.ops.planish.row_norm_recipe.default
_layer_norm = torch.ops.planish.layer_norm.default
_rms_norm = torch.ops.planish.rms_norm.default
# Without normalized_shape, which is weight's shape: PyTorch is slow to parse a list.
_affine_layer_norm = torch.ops.planish.affine_layer_norm.default
_affine_rms_norm = torch.ops.planish.affine_rms_norm.default
# The callable behind the operator saves one Python call. torch.compile needs the operator itself.
_affine_layer_norm_op = getattr(_affine_layer_norm, "_op", _affine_layer_norm)
_affine_rms_norm_op = getattr(_affine_rms_norm, "_op", _affine_rms_norm)
_layer_norm_simple = torch.ops.planish.layer_norm_simple.default
_detach_norm = torch.ops.planish.detach_norm.default
_ada_norm = torch.ops.planish.ada_norm.default
_add_layer_norm = torch.ops.planish.add_layer_norm.default
_add_rms_norm = torch.ops.planish.add_rms_norm.default
_dropout_add_layer_norm = torch.ops.planish.dropout_add_layer_norm.default
_dropout_add_rms_norm = torch.ops.planish.dropout_add_rms_norm.default
_gated_layer_norm = torch.ops.planish.gated_layer_norm.default
_gated_rms_norm = torch.ops.planish.gated_rms_norm.default
_quantized_layer_norm = torch.ops.planish.quantized_layer_norm.default
_quantized_rms_norm = torch.ops.planish.quantized_rms_norm.default
_add_quantized_layer_norm = torch.ops.planish.add_quantized_layer_norm.default
_add_quantized_rms_norm = torch.ops.planish.add_quantized_rms_norm.default
_channel_layer_norm = torch.ops.planish.channel_layer_norm.default
_batch_norm = torch.ops.planish.batch_norm.default
_online_layer_norm = torch.ops.planish.online_layer_norm.default
_online_alphas = torch.ops.planish.online_alphas.default
_group_norm = torch.ops.planish.group_norm.default
_instance_norm = torch.ops.planish.instance_norm.default
_dyt = torch.ops.planish.dyt.default
_derf = torch.ops.planish.derf.default
_weight_norm = torch.ops.planish.weight_norm.default
