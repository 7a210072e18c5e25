"""The adapter's float64 reference on given weights: it gives what a module with the same parts gives."""

import copy

import pytest
import torch
from torch.testing import assert_close

from attncheck.compare import Inapplicable
from attncheck.inputs import drawn as inputs_of
from attncheck_adapters.reference import make, shared
from attncheck_reference import Alibi, BucketBias, DotProductAttention, MultiHeadAttention, OffsetBias, Rotary

TEMPERATURE = torch.tensor([0.2, 0.5, 1.0, -2.0]).view(4, 1, 1)
PARTS = {
    "rotary": {"rotary": Rotary(6, pairing="interleaved", part=4)},
    "rms": {"qk_norm": "rms", "rotary": "half", "qk_norm_first": False},
    "layer": {"qk_norm": "layer", "qk_norm_over": "each"},
    "unit": {"qk_norm": "unit", "scale": TEMPERATURE},
    "all": {"qk_norm": "rms", "qk_norm_over": "all"},
    "alibi": {"position_bias": Alibi(4, "signed")},
    "buckets": {"position_bias": BucketBias(8, 4, max_distance=20)},
    "offsets": {"position_bias": OffsetBias(3, 4, clamp="clip")},
    "sink": {"sink": True},
    "sink and extra": {"sink": True, "extra_keys": 2},
    "gate": {"gate": "head"},
    "around": {"pre_norm": "layer", "post_norm": "rms", "residual": True},
    "memory": {"pre_norm": "rms", "pre_norm_memory": "own", "gate": "feature", "norm_eps": 0.1},
}


def built(init, g=2):
    """A float32 module with all parameters drawn."""
    m = MultiHeadAttention(24, 4, g, **copy.deepcopy(init))
    for parameter in m.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return m


def oracle_of(m, init):
    given = {k: v for k, v in init.items() if k != "extra_keys"}
    return shared({k: v.detach() for k, v in m.named_parameters()}, 4, m.kv_heads, **given)


@pytest.fixture(params=PARTS, name="part")
def _part(request):
    return PARTS[request.param]


def test_the_same_weights_and_keywords_give_the_same(part):
    m, inputs = built(part), inputs_of("memory", [(2, 4, 24), (2, 5, 24)] * 2, 1, torch.float32, torch.device("cpu"))
    if "position_bias" in part and hasattr(part["position_bias"], "table"):
        assert m.position_bias.table.abs().max() > 0
    oracle, allowed = oracle_of(m, part), torch.rand(4, 5) < 0.7
    allowed[:, 0] = True
    query, memory, _ = inputs.tensors()
    for mask in (None, allowed):
        found = oracle.call(query.double(), memory.double(), memory.double(), mask)
        want = copy.deepcopy(m).double()(query.double(), memory.double(), memory.double(), mask, need_weights=True)
        assert_close(found, want)
    plain = shared({k: v for k, v in m.state_dict().items() if k[:2] in ("q.", "k.", "v.", "o.")}, 4, 2)
    assert not torch.allclose(found[0], plain.call(*(x.double() for x in inputs.tensors()), allowed)[0])


def test_it_is_built_again_the_same_and_differs_by_a_seed(part):
    oracle, x = oracle_of(built(part), part), torch.randn(2, 3, 24).double()
    assert torch.equal(oracle.rebuilt(0).call(x, x, x, None)[0], oracle.call(x, x, x, None)[0])
    assert not torch.allclose(oracle.rebuilt(1).call(x, x, x, None)[0], oracle.call(x, x, x, None)[0])


def test_its_scores_explain_its_weights(part):
    """Where heads share the scale and there is neither bias nor sink, weights are a softmax of scores * factor."""
    oracle = oracle_of(built(part), part)
    inputs = inputs_of("self", [(2, 4, 24)] * 3, 1, torch.float64, torch.device("cpu"))
    scores, weights = oracle.scores(inputs), oracle.call(*inputs.tensors(), None)[1]
    if "scale" in part:
        assert oracle.factor == 2.0
        assert_close(weights, (scores * TEMPERATURE.double()).softmax(-1))
    elif "sink" in part:
        assert_close(weights / weights.sum(-1, keepdim=True), (scores * oracle.factor).softmax(-1))
    else:
        bias = oracle.module.position_bias
        assert_close(weights, (scores * oracle.factor + (0 if bias is None else bias(4, 4))).softmax(-1))
    if "extra_keys" not in part:
        assert_close(oracle.output_of(inputs, weights), oracle.call(*inputs.tensors(), None)[0])
    around = {"gate", "pre_norm", "post_norm", "residual"} & set(part)
    if around:
        with pytest.raises(Inapplicable, match="the output is no sum over values alone, but has "):
            oracle.contributions(inputs.value)
    elif "extra_keys" not in part:
        parts, rest = oracle.contributions(inputs.value)
        assert_close(torch.einsum("nhts,nhsd->ntd", weights, parts) + rest, oracle.call(*inputs.tensors(), None)[0])


def test_the_callers_bias_stays_as_it_is():
    bias = BucketBias(8, 4)
    kept = bias.table.detach().clone()
    oracle = oracle_of(built({}), {"position_bias": bias})
    assert oracle.module.position_bias.table.dtype == torch.float64
    assert bias.table.dtype == torch.float32
    assert torch.equal(oracle.module.position_bias.table.float(), kept)  # no weight of that name was given
    made = make(width=24, heads=4, position_bias=bias)
    made.module.double()
    assert bias.table.dtype == torch.float32


def test_what_is_missing_is_left_out():
    plain = {k: v for k, v in built({}).state_dict().items() if k.endswith("weight")}
    m = shared(plain, 4, 2, qk_norm="layer", pre_norm="rms", post_norm="layer", gate="head", sink=True).module
    for name in ("q_norm", "k_norm", "pre_norm", "post_norm"):
        assert m.get_parameter(f"{name}.weight").eq(1).all()
    for name in ("q_norm.bias", "post_norm.bias", "gate.bias", "gate.weight", "sink", "q.bias", "o.bias"):
        assert m.get_parameter(name).eq(0).all()


def test_a_kernel_may_have_a_sink_and_a_bias():
    weights = {"sink": torch.randn(4), "position_bias.table": torch.randn(8, 4)}
    m = shared(weights, 4, 2, DotProductAttention, position_bias=BucketBias(8, 4)).module
    assert torch.equal(m.sink.float(), weights["sink"])
    assert torch.equal(m.position_bias.table.float(), weights["position_bias.table"])


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ({}, ("one", "zero", "none")),
        ({"sink": True, "dead_rows": "nan"}, ("below-one", "zero", "none")),
        ({"sink": True, "extra_keys": 1}, ("below-one", "undefined", "none")),
        ({"rotary": "half"}, ("one", "zero", "relative")),
        ({"position_bias": "alibi", "dead_rows": "nan"}, ("one", "nan", "relative")),
        ({"residual": True}, ("one", "undefined", "none")),
        ({"gate": "head"}, ("one", "zero", "none")),
        ({"gate": "head", "dead_rows": "uniform"}, ("one", "undefined", "none")),
    ],
)
def test_conventions(init, expected):
    said = make(width=24, heads=4, **{"dead_rows": "zero", **init}).conventions
    assert (said.get("weight_sum", "one"), said["fully_masked"], said["positions"]) == expected


@pytest.mark.parametrize(
    "init", [{"rotary": Rotary(6, part=2)}, {"rotary": "interleaved", "position_bias": "buckets", "sink": True}]
)
def test_a_script_builds_the_same(init):
    target, scope = make(width=24, heads=4, **init), {}
    exec("import torch\n" + target.source(), scope)
    x = torch.randn(2, 3, 24)
    assert torch.equal(scope["call"](x, x, x, None)[0], target.call(x, x, x, None)[0])
    assert target.parts == init
