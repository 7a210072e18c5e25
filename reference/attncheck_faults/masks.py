"""Faults of masks. T queries, S keys; `m` is the broken module, `sound` the step as it should be."""

import torch
import torch.nn.functional as F

from attncheck_faults.record import fault


@fault("mask.inverted", step="attend", bugs=("B017", "B018", "B159", "B236"), dead_rows="uniform")
def inverted(m, sound, q, k, v, allowed, bias):
    """The mask is read the other way round: True blocks"""
    return sound(q, k, v, None if allowed is None else ~allowed, bias)


@fault("mask.ignored", step="attend", bugs=("B143", "B187", "B235", "B131", "B137"))
def ignored(m, sound, q, k, v, allowed, bias):
    """The mask is accepted and never used"""
    return sound(q, k, v, None, None)


@fault("mask.soft", step="mask", bugs=("B015", "B020"))
def soft(m, sound, scores, allowed):
    """The bool mask is added to the scores as 0 and 1, so that it only prefers keys"""
    return scores if allowed is None else scores + allowed.to(scores.dtype)


@fault("mask.multiplied-into-scores", step="mask", bugs=("B144",))
def multiplied(m, sound, scores, allowed):
    """The scores are multiplied by the mask, so that blocked keys keep the score 0"""
    return scores if allowed is None else scores * allowed


@fault("mask.additive-multiplied", step="attend", path="additive", bugs=("B144",), dead_rows="nan")
def additive_multiplied(m, sound, q, k, v, allowed, bias):
    """An additive mask is multiplied into the scores instead of added"""
    if bias is None and allowed is not None:
        bias = torch.zeros(allowed.shape, dtype=q.dtype).masked_fill(~allowed, -torch.inf)
    if bias is None:
        return sound(q, k, v, None, None)
    scores = m.scale(m.score(q, m.spread(k)), q.shape[-1]) * bias
    weights = m.softmax(scores)
    return m.mix(weights, m.spread(v)), weights


@fault("mask.after-softmax", step="attend", bugs=("B142",))
def after_softmax(m, sound, q, k, v, allowed, bias):
    """The mask is applied after softmax and the rows are not normalised again"""
    mixed, weights = sound(q, k, v, None, None)
    allowed = allowed if bias is None else bias > -torch.inf
    if allowed is None:
        return mixed, weights
    weights = weights * allowed
    return m.mix(weights, m.spread(v)), weights


@fault("mask.multiplied-and-renormalised", step="mask", bugs=("B138", "B144"))
def renormalised(m, sound, scores, allowed):
    """Softmax runs over all keys, then the mask is multiplied in and the rows are divided by their sum"""
    if allowed is None:
        return scores
    weights = scores.softmax(-1) * allowed
    return (weights / weights.sum(-1, keepdim=True)).log()


@fault("mask.fill-minus-1e4", step="mask", bugs=("B139",))
def fill_1e4(m, sound, scores, allowed):
    """Blocked scores are set to -1e4, which very negative allowed scores undercut"""
    return scores if allowed is None else scores.masked_fill(~allowed, -1e4)


@fault("mask.fill-minus-1e9", step="mask", bugs=("B028", "B029"))
def fill_1e9(m, sound, scores, allowed):
    """Blocked scores are set to -1e9, which float16 cannot hold"""
    return scores if allowed is None else scores.masked_fill(~allowed, -1e9)


@fault("mask.fill-overflows-to-nan", step="mask", bugs=("B030", "B210", "B012"))
def fill_nan(m, sound, scores, allowed):
    """The mask is multiplied by -1e9 and added, which is 0 times infinity in float16"""
    if allowed is None:
        return scores
    return scores + (~allowed).to(scores.dtype) * torch.tensor(-1e9).to(scores.dtype)


@fault("mask.transposed", step="mask", bugs=("B140",), dead_rows="uniform")
def transposed(m, sound, scores, allowed):
    """The mask lies across: its query axis is used for the keys where both have one length"""
    square = allowed is not None and allowed.shape[-1] == allowed.shape[-2]
    return sound(scores, allowed.mT if square else allowed)


@fault("mask.query-axis", step="attend", bugs=("B140",), dead_rows="uniform")
def query_axis(m, sound, q, k, v, allowed, bias):
    """A padding mask is laid along the queries instead of the keys where both have one length"""
    padding = allowed is not None and allowed.ndim == 4 and allowed.shape[-2] == 1
    if padding and q.shape[-2] == k.shape[-2]:
        allowed = allowed.mT.expand(-1, -1, -1, k.shape[-2])
    return sound(q, k, v, allowed, bias)


@fault("mask.first-sample-for-all", step="mask", bugs=("B154", "B117"))
def first_sample(m, sound, scores, allowed):
    """The first sample's mask is used for the whole batch"""
    per_sample = allowed is not None and allowed.ndim == 4
    return sound(scores, allowed[:1] if per_sample else allowed)


@fault("mask.first-head-for-all", step="mask", bugs=("B155",))
def first_head(m, sound, scores, allowed):
    """The first head's mask is used for all heads"""
    per_head = allowed is not None and allowed.ndim == 4
    return sound(scores, allowed[:, :1] if per_head else allowed)


@fault("mask.last-head-unmasked", step="mask")
def last_head(m, sound, scores, allowed):
    """The last head is left without a mask"""
    masked = sound(scores, allowed)
    return torch.cat((masked[:, :-1], scores[:, -1:]), 1)


@fault("mask.head-major", step="mask", bugs=("B051", "B077", "B078"))
def head_major(m, sound, scores, allowed):
    """Per-sample masks are laid out head by head where the scores lie sample by sample"""
    if allowed is None or allowed.ndim != 4 or allowed.shape[0] == 1:
        return sound(scores, allowed)
    N, h = scores.shape[:2]
    full = allowed.expand(N, h, -1, -1)
    return sound(scores, full.transpose(0, 1).reshape(full.shape))


@fault("mask.heads-as-batch", step="mask", bugs=("B080", "B152"))
def heads_as_batch(m, sound, scores, allowed):
    """A mask with one row a sample is aligned with the heads where there are as many heads as samples"""
    N, h = scores.shape[:2]
    lost = allowed is not None and allowed.ndim == 4 and allowed.shape[:2] == (h, 1) and h == N
    return sound(scores, allowed.transpose(0, 1) if lost else allowed)


@fault("mask.ignored-at-batch-one", step="attend")
def batch_one(m, sound, q, k, v, allowed, bias):
    """The mask is dropped where the batch has one sample"""
    return sound(q, k, v, *((None, None) if q.shape[0] == 1 else (allowed, bias)))


@fault("mask.dropped-across", step="mask", bugs=("B153", "B067"))
def square_only(m, sound, scores, allowed):
    """The mask is dropped where there are more or fewer keys than queries"""
    return sound(scores, allowed if scores.shape[-1] == scores.shape[-2] else None)


@fault("mask.dropped-with-weights", step="forward", path="weights", bugs=("B002", "B083", "B186"))
def dropped_with_weights(m, sound, query, key, value, allowed=None, bias=None, need_weights=False):
    """The mask is dropped as soon as weights are asked for"""
    return sound(query, key, value, *((None, None) if need_weights else (allowed, bias)), need_weights)


@fault("mask.dropped-in-training", step="attend", bugs=("B157", "B256"))
def dropped_in_training(m, sound, q, k, v, allowed, bias):
    """The mask is dropped in training"""
    return sound(q, k, v, *((None, None) if m.training else (allowed, bias)))


@fault("mask.dropped-without-grad", step="attend", bugs=("B177", "B244"))
def dropped_without_grad(m, sound, q, k, v, allowed, bias):
    """The mask is dropped on the path without gradients"""
    return sound(q, k, v, *((allowed, bias) if torch.is_grad_enabled() else (None, None)))


@fault("mask.additive-read-as-bool", step="attend", path="additive", bugs=("B019", "B179"), dead_rows="uniform")
def additive_as_bool(m, sound, q, k, v, allowed, bias):
    """An additive mask is cast to bool, so that 0 (allowed) becomes False and -inf becomes True"""
    return sound(q, k, v, allowed if bias is None else bias.bool(), None)


@fault("mask.last-key-visible", step="mask", bugs=("B151", "B156"))
def last_key(m, sound, scores, allowed):
    """The mask is one key too short, so that the last key is always seen"""
    if allowed is None:
        return scores
    allowed = allowed.clone()
    allowed[..., -1] = True
    return sound(scores, allowed)


@fault("mask.first-key-hidden", step="mask")
def first_key(m, sound, scores, allowed):
    """The first key is hidden by every mask that leaves another one"""
    if allowed is None:
        return scores
    without = allowed.clone()
    without[..., 0] = False
    return sound(scores, torch.where(without.any(-1, keepdim=True), without, allowed))


@fault("mask.all-but-strongest", step="mask")
def strongest(m, sound, scores, allowed):
    """Under a mask only the strongest allowed key is kept"""
    if allowed is None:
        return scores
    masked = sound(scores, allowed)
    return masked.masked_fill(masked < masked.amax(-1, keepdim=True), -torch.inf)


@fault("mask.dead-rows-by-weights", step="forward", path="weights", bugs=("B002",), dead_rows="zero")
def dead_by_weights(m, sound, query, key, value, allowed=None, bias=None, need_weights=False):
    """A fully masked row gives NaN when weights are asked for, and zero otherwise"""
    m.dead_rows = "nan" if need_weights else "zero"
    return sound(query, key, value, allowed, bias, need_weights)


@fault("mask.dead-rows-uniform-by-weights", step="forward", path="weights", bugs=("B145", "B023"), dead_rows="zero")
def dead_uniform_by_weights(m, sound, query, key, value, allowed=None, bias=None, need_weights=False):
    """A fully masked row is uniform when weights are asked for, and zero otherwise"""
    m.dead_rows = "uniform" if need_weights else "zero"
    return sound(query, key, value, allowed, bias, need_weights)


@fault("mask.dead-rows-without-grad", step="settle_dead_rows", bugs=("B005", "B024", "B252"), dead_rows="zero")
def dead_without_grad(m, sound, weights, allowed):
    """A fully masked row gives NaN on the path without gradients, and zero otherwise"""
    return sound(weights, allowed) if torch.is_grad_enabled() else weights


@fault("mask.dead-rows-in-training", step="settle_dead_rows", bugs=("B145",), dead_rows="zero")
def dead_in_training(m, sound, weights, allowed):
    """A fully masked row is uniform in training, and zero otherwise"""
    if not m.training or allowed is None:
        return sound(weights, allowed)
    return weights.masked_fill(~allowed.any(-1, keepdim=True), 1 / weights.shape[-1])


@fault("mask.short-padded", step="attend")
def short_padded(m, sound, q, k, v, allowed, bias):
    """A mask with too few keys is filled up, so that the last keys are seen by all"""
    if allowed is not None and allowed.shape[-1] < k.shape[-2]:
        allowed = F.pad(allowed, (0, k.shape[-2] - allowed.shape[-1]), value=True)
    return sound(q, k, v, allowed, bias)


@fault("mask.padding-taken-for-lengths", step="attend", bugs=("B034", "B129"))
def padding_as_lengths(m, sound, q, k, v, allowed, bias):
    """A padding mask is reduced to the number of real tokens, as if all padding were on the right"""
    if allowed is not None and allowed.ndim == 4 and allowed.shape[-2] == 1:
        allowed = torch.arange(allowed.shape[-1], device=allowed.device) < allowed.sum(-1, keepdim=True)
    return sound(q, k, v, allowed, bias)


@fault("mask.heads-reversed", step="mask")
def heads_reversed(m, sound, scores, allowed):
    """Masks that differ from head to head are applied to the heads in reverse order"""
    per_head = allowed is not None and allowed.ndim == 4
    return sound(scores, allowed.flip(1) if per_head else allowed)


@fault("mask.rolled-across", step="mask")
def rolled_across(m, sound, scores, allowed):
    """The mask slips by one key where there are more or fewer keys than queries"""
    across = allowed is not None and scores.shape[-1] != scores.shape[-2]
    return sound(scores, allowed.roll(1, -1) if across else allowed)


@fault("mask.dropped-under-dropout", step="attend", bugs=("B083",))
def dropped_under_dropout(m, sound, q, k, v, allowed, bias):
    """The mask is dropped as soon as dropout is on"""
    on = m.training and m.drop.p > 0
    return sound(q, k, v, None if on else allowed, None if on else bias)


@fault("mask.replaced-by-causal", step="attend", bugs=("B181",), causal=True)
def replaced_by_causal(m, sound, q, k, v, allowed, bias):
    """An explicit mask is dropped because the module is causal"""
    return sound(q, k, v, None, None)


@fault("mask.additive-forgets-first-key", step="attend", path="additive")
def additive_first_key(m, sound, q, k, v, allowed, bias):
    """An additive mask does not reach the first key"""
    if bias is not None:
        bias = torch.cat((torch.zeros_like(bias[..., :1]), bias[..., 1:]), -1)
    return sound(q, k, v, allowed, bias)


@fault("mask.bias-scaled", step="attend", path="additive", bugs=("B122",))
def bias_scaled(m, sound, q, k, v, allowed, bias):
    """An additive mask is divided by sqrt(d) along with the scores"""
    return sound(q, k, v, allowed, None if bias is None else bias * q.shape[-1] ** -0.5)


@fault("mask.bias-read-as-bool", step="attend", path="additive", bugs=("B179",), dead_rows="uniform")
def bias_as_bool(m, sound, q, k, v, allowed, bias):
    """An additive mask is turned into a bool one, so that any other value than 0 blocks"""
    return sound(q, k, v, allowed, None if bias is None else bias.masked_fill(bias != 0, -torch.inf))


@fault("mask.dead-rows-cleaned-after", step="mask", bugs=("B001", "B026"), dead_rows="zero")
def dead_cleaned_after(m, sound, scores, allowed):
    """-inf is added to the scores, and a fully masked row is cleaned after the softmax: its gradients stay NaN"""
    return scores if allowed is None else scores + torch.zeros_like(scores).masked_fill(~allowed, -torch.inf)


@fault("mask.dropped-when-compiled", step="mask", dead_rows="nan")
def dropped_when_compiled(m, sound, scores, allowed):
    """The mask is dropped in the branch for torch.compile"""
    return scores if torch.compiler.is_compiling() else sound(scores, allowed)


@fault("mask.dropped-when-exported", step="mask", bugs=("B238",), dead_rows="nan")
def dropped_when_exported(m, sound, scores, allowed):
    """The mask is dropped in the branch for torch.export"""
    return scores if torch.compiler.is_exporting() else sound(scores, allowed)
