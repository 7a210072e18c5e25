"""Faults of dropout and of training mode; `m` is the broken module, `sound` the step as it should be."""

import torch.nn.functional as F

from attncheck_faults.record import fault


@fault("dropout.on-in-eval", step="dropout", bugs=("B056", "B229"))
def on_in_eval(m, sound, weights):
    """Dropout stays on in evaluation"""
    return F.dropout(weights, m.drop.p, training=True)


@fault("dropout.off-after-eval", step="dropout", bugs=("B228",))
def off_after_eval(m, sound, weights):
    """An evaluation sets the dropout rate to 0 for good"""
    if not m.training:
        m.drop.p = 0.0
    return sound(weights)


@fault("dropout.never", step="dropout")
def never(m, sound, weights):
    """Dropout is configured and never applied"""
    return weights


@fault("modes.scaled-in-training", step="dropout")
def scaled_in_training(m, sound, weights):
    """Weights are scaled up in training although nothing was dropped"""
    return sound(weights) * (1.25 if m.training else 1.0)
