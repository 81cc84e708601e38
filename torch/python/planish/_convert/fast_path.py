"""The fast path of torch.nn.TransformerEncoderLayer.

In evaluation it computes LayerNorm from the weights of its norms, whatever these norms are. So it
is off while a norm is not torch.nn's, and on again after ``convert(model, "torch")``.
"""

from torch import nn

__all__ = ["adapt_fast_path"]

# The attribute with the original value. Copies and saved models have it, too.
_KEPT = "_planish_fast_path"


def adapt_fast_path(model: nn.Module, swapped: set[nn.Module]) -> list[str]:
    """Switches the path off or on where norms were replaced. Returns notes for the report."""
    off, on = 0, 0
    for layer in model.modules():
        if isinstance(layer, nn.TransformerEncoderLayer):
            norms = [getattr(layer, name, None) for name in ("norm1", "norm2")]
            if swapped.isdisjoint(norms):
                continue
            if all(type(norm) is nn.LayerNorm for norm in norms):
                on += _restore(layer, "activation_relu_or_gelu")
            else:
                # One of the conditions of the path; nothing else reads it.
                off += _switch_off(layer, "activation_relu_or_gelu", 0)
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder):
            if any(_KEPT in layer.__dict__ for layer in encoder.layers):
                _switch_off(encoder, "use_nested_tensor", False)  # which the slow path cannot read
            else:
                _restore(encoder, "use_nested_tensor")
    notes = []
    if off:
        notes.append(
            f"the fast path of {off} TransformerEncoderLayer is off: it bypasses their norms"
        )
    if on:
        notes.append(f"the fast path of {on} TransformerEncoderLayer is on again")
    return notes


def _switch_off(module: nn.Module, name: str, value: object) -> bool:
    """Replaces an attribute that is on, and stores it. Returns False if it is off."""
    if not getattr(module, name, None):
        return False
    module.__dict__[_KEPT] = getattr(module, name)
    setattr(module, name, value)
    return True


def _restore(module: nn.Module, name: str) -> bool:
    """Restores the stored value, unless somebody has set one since."""
    if _KEPT not in module.__dict__:
        return False
    before = module.__dict__.pop(_KEPT)
    if getattr(module, name, None):
        return False
    setattr(module, name, before)
    return True
