"""Planish in other libraries.

Each module needs the library that it is named after, and is imported by its name:

- ``planish.integrations.sb3``: sb3-contrib's RecurrentPPO and its policies
- ``planish.integrations.torchrl``: LSTMModule and GRUModule of TorchRL
- ``planish.integrations.transformers``: norms on the CPU, through the package ``kernels``

docs/reinforcement-learning.md shows the use of the first two, and recipes for CleanRL and rsl_rl.
"""
