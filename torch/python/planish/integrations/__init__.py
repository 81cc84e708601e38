"""Planish's recurrent layers in libraries for reinforcement learning.

Each module needs the library that it is named after, and is imported by its name:

- ``planish.integrations.sb3``: sb3-contrib's RecurrentPPO and its policies
- ``planish.integrations.torchrl``: LSTMModule and GRUModule of TorchRL

docs/reinforcement-learning.md shows their use, and recipes for CleanRL and rsl_rl.
"""
