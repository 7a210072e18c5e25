"""Faults of the projections; `m` is the broken module, `sound` the step as it should be."""

import torch
import torch.nn.functional as F

from attncheck_faults.record import fault


@fault("projection.value-from-key", step="project", bugs=("B265",))
def value_from_key(m, sound, query, key, value):
    """The key's projection is used for the values too"""
    return m.q(query), m.k(key), m.k(value)


@fault("projection.value-input-ignored", step="project", bugs=("B066",))
def value_ignored(m, sound, query, key, value):
    """The values are made from the key, so that the value input is ignored"""
    return sound(query, key, key)


@fault("projection.value-is-key", step="project", bugs=("B265",))
def value_is_key(m, sound, query, key, value):
    """The projected keys are used as the values"""
    q, k, _ = sound(query, key, value)
    return q, k, k


@fault("projection.query-from-key", step="project", bugs=("B265",))
def query_from_key(m, sound, query, key, value):
    """The key's projection is used for the queries too"""
    return m.k(query), m.k(key), m.v(value)


@fault("projection.memory-ignored", step="project", bugs=("B066",))
def memory_ignored(m, sound, query, key, value):
    """Keys and values are made from the query, so that the memory is ignored"""
    return sound(query, query, query)


@fault("projection.no-output", step="output", bugs=("B264",))
def no_output(m, sound, merged):
    """The output projection is left out"""
    return merged


@fault("projection.no-output-bias", step="output")
def no_output_bias(m, sound, merged):
    """The bias of the output projection is left out"""
    return F.linear(merged, m.o.weight)


@fault("projection.no-value-bias", step="project")
def no_value_bias(m, sound, query, key, value):
    """The bias of the value projection is left out"""
    q, k, v = sound(query, key, value)
    return q, k, v - m.v.bias


@fault("projection.output-transposed", step="output", bugs=("B263",))
def output_transposed(m, sound, merged):
    """The output projection is multiplied the other way round, which fits because it is square"""
    return F.linear(merged, m.o.weight.T, m.o.bias)


@fault("gradient.keys-detached", step="project")
def keys_detached(m, sound, query, key, value):
    """The keys are detached, so that nothing learns through them"""
    q, k, v = sound(query, key, value)
    return q, k.detach(), v


@fault("gradient.values-detached", step="project")
def values_detached(m, sound, query, key, value):
    """The values are detached, so that nothing learns through them"""
    q, k, v = sound(query, key, value)
    return q, k, v.detach()


@fault("gradient.softmax-halved", step="softmax")
def softmax_halved(m, sound, scores):
    """The backward pass of softmax gives half of the gradient"""
    weights = sound(scores)
    return 0.5 * weights + (0.5 * weights).detach()


@fault("gradient.output-bias-detached", step="output", bugs=("B248",))
def output_bias_detached(m, sound, merged):
    """The bias of the output projection is added without a gradient"""
    return F.linear(merged, m.o.weight, m.o.bias.detach())


@fault("projection.extra-key-ignored", step="extend", bugs=("B247",), extra_keys=1)
def extra_key_ignored(m, sound, q, scores, v):
    """The learned key that every query should see is never used"""
    return scores, v


@fault("cross.roles-swapped", step="forward", bugs=("B066",))
def roles_swapped(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """Queries come from the memory, keys and values from x, where both have one shape"""
    if key is None or key is query or key.shape != query.shape:
        return sound(query, key, value, allowed, bias, need_weights)
    return sound(key, query, query, allowed, bias, need_weights)


@fault("cross.queries-averaged", step="project")
def queries_averaged(m, sound, query, key, value):
    """A tenth of the mean of all queries is added to each"""
    q, k, v = sound(query, key, value)
    return q + 0.1 * q.mean(1, keepdim=True), k, v


@fault("cross.silently-causal", step="attend", bugs=("B068", "B214"))
def silently_causal(m, sound, q, k, v, allowed, bias):
    """Without a mask, attention to a memory of another length is causal"""
    if allowed is None and bias is None and q.shape[-2] != k.shape[-2]:
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return sound(q, k, v, allowed, bias)
