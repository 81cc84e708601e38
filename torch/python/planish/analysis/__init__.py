"""Measurements of the norms in a model."""

from .gradients import GradientStatistics, NormGradients, gradient_statistics
from .invariances import TRANSFORMATIONS, Invariances, Measured, Row, invariances

__all__ = [
    "TRANSFORMATIONS",
    "GradientStatistics",
    "Invariances",
    "Measured",
    "NormGradients",
    "Row",
    "gradient_statistics",
    "invariances",
]
