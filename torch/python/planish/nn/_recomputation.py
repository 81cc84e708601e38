"""Support for activation checkpointing of modules whose state changes in a forward pass.

``torch.utils.checkpoint`` runs a region without saving its activations, either without gradients or
with hooks on saved tensors, and runs it again in the backward pass. The second run must start from
the state of the first and must not change the state.

Each call that can run again is therefore logged with its initial state. A second run is matched to
its first by the input. Among equal inputs it is matched by its place in the graph, because autograd
numbers nodes in the order of their creation.
"""

import collections
import threading
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["next_state", "start_state"]

_CAPACITY = 4096  # calls, about 2 MB


class _Call(NamedTuple):
    place: int  # the address of the module's state
    order: int  # the number of the next autograd node
    hooks: Any  # weak reference to the hook on saved tensors, if any
    fingerprint: Tensor
    start: Tensor

    def region(self) -> Any:
        """Returns a value that is equal for calls in one checkpointed region."""
        return self.order if self.hooks is None else self.hooks


_calls: collections.deque[_Call] = collections.deque(maxlen=_CAPACITY)
_lock = threading.Lock()


def start_state(state: Tensor, x: Tensor) -> Tensor:
    """Returns the initial state of a call with input x: `state` in a first run.

    Raises RuntimeError in a second run if the first run is unknown.
    """
    if _is_exporting():
        return state
    if torch.compiler.is_compiling():
        return _start_state_op(state, x.detach())  # type: ignore[no-any-return]
    return _start_state(state, x.detach())


def next_state(state: Tensor, after: Tensor) -> Tensor:
    """Returns the state after a call: `after` in a first run, `state` in a second one."""
    if _is_exporting():
        return after
    if torch.compiler.is_compiling():
        return _next_state_op(state, after)  # type: ignore[no-any-return]
    return state if _runs_again(state) else after


def _is_exporting() -> bool:
    # torch.compiler.is_exporting() returns True in every graph that Dynamo of PyTorch 2.11 traces.
    return torch.compiler._is_exporting_flag


def _runs_again(state: Tensor) -> bool:
    if torch._C._current_graph_task_id() == -1 or not _has_address(state):
        return False  # not in a backward pass
    place = state.data_ptr()
    return any(call.place == place for call in tuple(_calls))


def _has_address(state: Tensor) -> bool:
    return type(state) is Tensor and not torch._C._are_functorch_transforms_active()


def _start_state(state: Tensor, x: Tensor) -> Tensor:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    again = _runs_again(state)
    logged = _has_address(state) and (hooks is not None or not torch.is_grad_enabled())
    if not again and not logged:
        return state
    fingerprint = _fingerprint(x)
    start = _logged_state(state, fingerprint, hooks is not None) if again else state.clone()
    if logged:  # in a second run, too: checkpointed regions can be nested
        order = torch._C._autograd._get_sequence_nr()
        region = None if hooks is None else weakref.ref(hooks[0])
        call = _Call(state.data_ptr(), order, region, fingerprint, start)
        with _lock:
            while _calls and _calls[0].hooks is not None and _calls[0].hooks() is None:
                _calls.popleft()  # its graph is gone
            _calls.append(call)
    return start


def _logged_state(state: Tensor, fingerprint: Tensor, in_hooks: bool) -> Tensor:
    running: Any = torch._C._current_autograd_node()
    node, place = running._sequence_nr(), state.data_ptr()
    calls = [call for call in tuple(_calls) if call.place == place]
    equal = [call for call in calls if torch.equal(call.fingerprint, fingerprint)]
    # A region with hooks runs again for one of its own nodes. A region without gradients has no
    # nodes; it runs again for a node created before it.
    before = [call for call in equal if call.hooks is not None and call.order <= node + 1]
    after = [call for call in equal if call.order > node]
    reason = "no earlier call had this input"
    if before or after:
        if before and (in_hooks or not after):
            found = max(before, key=lambda call: call.order)
        else:
            found = min(after, key=lambda call: call.order)
        starts = [call.start for call in equal if call.region() == found.region()]
        if all(torch.equal(start, starts[0]) for start in starts):
            return starts[0]
        reason = "two calls in one checkpointed region had this input"
    raise RuntimeError(
        f"[OnlineLayerNorm] cannot run a checkpointed forward pass again, because the state that "
        f"it started from is not known ({reason}). Run the module outside of "
        f"torch.utils.checkpoint, or pass states to planish.functional.online_layer_norm"
    )


def _fingerprint(x: Tensor) -> Tensor:
    with torch.no_grad():
        wide = x.double()
        return torch.stack([wide.sum(), wide.square().sum()]).view(torch.int64)


# Operators for compiled code, which cannot call the Python code of a module.


@torch.library.custom_op("planish::online_start_state", mutates_args=())
def _start_state_op(state: Tensor, x: Tensor) -> Tensor:
    return _start_state(state, x).clone()


@torch.library.custom_op("planish::online_next_state", mutates_args=())
def _next_state_op(state: Tensor, after: Tensor) -> Tensor:
    return (state if _runs_again(state) else after).clone()


@_start_state_op.register_fake
def _(state: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(state)


@_next_state_op.register_fake
def _(state: Tensor, after: Tensor) -> Tensor:
    return torch.empty_like(state)
