"""Faults of dropout and of training mode; `m` is the broken module, `sound` the step as it should be."""

import torch
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


@fault("dropout.on-scores", step="softmax")
def on_scores(m, sound, scores):
    """Dropout acts on the scores, before softmax"""
    return sound(F.dropout(scores, m.drop.p, m.training))


@fault("dropout.not-rescaled", step="dropout")
def not_rescaled(m, sound, weights):
    """What is kept is not scaled up by 1 / (1 - p)"""
    return sound(weights) * (1 - m.drop.p if m.training else 1.0)


@fault("dropout.whole-rows", step="dropout")
def whole_rows(m, sound, weights):
    """A row of weights is dropped or kept as a whole"""
    return weights * sound(weights.new_ones(*weights.shape[:-1], 1))


@fault("dropout.renormalised", step="dropout")
def renormalised(m, sound, weights):
    """The weights that were kept are normalised again, so that rows sum to 1"""
    kept = sound(weights)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-6)


@fault("dropout.keeps-instead", step="dropout")
def keeps_instead(m, sound, weights):
    """p is taken for the probability to keep"""
    return F.dropout(weights, 1 - m.drop.p, m.training and m.drop.p > 0)


@fault("dropout.halved-rate", step="dropout")
def halved_rate(m, sound, weights):
    """Half of the rate is used"""
    return F.dropout(weights, m.drop.p / 2, m.training)


@fault("dropout.per-batch", step="dropout")
def per_batch(m, sound, weights):
    """All samples of a batch drop the same weights"""
    return weights * sound(weights.new_ones(1, *weights.shape[1:]))


@fault("dropout.gradient-by-p", step="dropout", bugs=("B054",))
def gradient_by_p(m, sound, weights):
    """The gradient of dropout is scaled by p where it should be scaled by 1 / (1 - p)"""
    kept = sound(weights)
    if not m.training or m.drop.p == 0:
        return kept
    wrong = kept * m.drop.p * (1 - m.drop.p)
    return wrong + (kept - wrong).detach()


@fault("modes.jitters-in-eval", step="output")
def jitters(m, sound, merged):
    """Noise of a millionth is added in evaluation"""
    output = sound(merged)
    return output if m.training else output + 1e-6 * torch.randn_like(output)


@fault("modes.draws-in-eval", step="output")
def draws(m, sound, merged):
    """A random number is drawn in evaluation and not used"""
    if not m.training:
        torch.rand(1)
    return sound(merged)


@fault("modes.no-bias-in-training-without-grad", step="output")
def no_bias_in_training(m, sound, merged):
    """The bias of the output is left out in training without gradients"""
    bare = m.training and not torch.is_grad_enabled()
    return F.linear(merged, m.o.weight, None if bare else m.o.bias)


@fault("half.scale-lost", step="scale")
def half_scale(m, sound, scores, d):
    """The scale is left out in half precision"""
    return scores if scores.dtype in (torch.float16, torch.bfloat16) else sound(scores, d)


@fault("half.output-in-float32", step="output")
def half_output(m, sound, merged):
    """In half precision the output comes back in float32"""
    output = sound(merged)
    return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output


@fault("half.weights-in-three-bits", step="dropout")
def three_bits(m, sound, weights):
    """In half precision the weights are rounded to multiples of 1/8"""
    few = weights.dtype in (torch.float16, torch.bfloat16)
    return sound((weights * 8).round() / 8 if few else weights)
