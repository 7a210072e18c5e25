"""Faults of the projections; `m` is the broken module, `sound` the step as it should be."""

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
