"""Profiles of synthetic modules, timed by a clock that the modules advance themselves, and of real modules."""

import json

import pytest
import torch
from ranks import run_ranks

import dflop
from dflop.torch import _profile, profile

TOKEN, PAIR = 1e-4, 1e-6  # forward seconds per token, and per pair of tokens of a sequence


class Clock:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_profile, "time", clock)
    return clock


class Takes(torch.autograd.Function):
    """Passes a tensor on, taking the given seconds forward and backward."""

    @staticmethod
    def forward(ctx, tensor, clock, forward, backward):
        ctx.clock, ctx.backward = clock, backward
        clock.now += forward
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.now += ctx.backward
        return gradient, None, None, None


class Layer(torch.nn.Module):
    """Takes t seconds forward, 2t for the gradient of its input and 3t for the gradient of its weight.

    t is TOKEN for each token plus PAIR for each pair of tokens of a sequence.
    """

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, lengths):
        t = TOKEN * sum(lengths) + PAIR * sum(length * length for length in lengths)
        return Takes.apply(x, self.clock, t, 2 * t) * Takes.apply(self.weight, self.clock, 0, 3 * t)


def make_input(part, lengths):
    return (torch.ones(sum(lengths), 4),), {"lengths": lengths}


@pytest.fixture
def model(source):
    return str(source / "experiments" / "presets" / "models" / "tiny-vlm.json")


def units_of(profile):
    return profile["tables"][0]["units"]


def test_a_profile_predicts_the_modules_time(clock, model, source, tmp_path):
    out = tmp_path / "profile.json"
    profile(
        {"llm": Layer(clock)}, make_input, {"llm": [8, 8]}, model, out=out, most_tokens=64, optimizer=None
    )
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    wish = {"layout": "uniform", "tp": 1, "pp": 1, "dp": 1, "microbatches": 2}
    plan = dflop.plan(
        model="tiny-vlm", cluster="a100-80g:1", data=data, gbs=4, iterations=1, profile=str(out), **wish
    )
    result = dflop.simulate(plan, data=data, iterations=1, scheduler="lpt", profile=str(out))
    # Two layers take t, 2t and 3t for all tokens, each of which is in a pair with 8. Beyond 64 tokens the line
    # continues. A single rank sends nothing.
    tokens = round(result["llm_tokens_per_s"] * result["iteration_s_mean"])
    expected = 2 * 6 * (TOKEN + 8 * PAIR) * tokens
    assert result["iteration_s_mean"] == pytest.approx(expected, rel=1e-6)


def test_a_layer_is_a_curve_over_tokens_and_one_over_lengths(clock, model):
    # Lengths 4, 8 and 16: the shortest one once, twice, ... up to 32 tokens, then 2 sequences of 8 and one of 16. The
    # module is two layers of four, so its input is another layer's output and needs a gradient.
    samples = {"llm": [16, 4, 8]}
    with open(model, encoding="utf-8") as file:
        deeper = json.load(file)
    deeper["llm"]["layers"] = 4
    units = units_of(profile({"llm": (Layer(clock), 2)}, make_input, samples, deeper, most_tokens=32))
    linear, attention = units["llm_linear"], units["llm_attention"]
    assert linear["tokens"] == [4, 8, 16, 32] and linear["lengths"] == [0] * 4
    # One layer takes half of each. A backward of 5 t that is not split counts as two halves.
    t = [TOKEN * n + PAIR * 4 * n for n in (4, 8, 16, 32)]
    assert linear["forward_s"] == pytest.approx([x / 2 for x in t])
    assert linear["backward_input_s"] == pytest.approx([5 * x / 4 for x in t])
    assert linear["backward_weight_s"] == pytest.approx([5 * x / 4 for x in t])
    assert attention["tokens"] == [4, 16, 16] and attention["lengths"] == [4, 8, 16]
    beyond = [PAIR * 16 * (length - 4) for length in (4, 8, 16)]
    assert attention["forward_s"] == pytest.approx([x / 2 for x in beyond], abs=1e-12)
    assert attention["backward_input_s"] == pytest.approx([5 * x / 2 for x in beyond], abs=1e-12)
    assert attention["backward_weight_s"] == pytest.approx([0, 0, 0], abs=1e-12)


def test_the_extra_time_of_short_sequences_counts_as_attention(clock, model):
    class OneByOne(torch.nn.Module):
        """Takes 2 ms per sequence and 1 ms per token."""

        def forward(self, x, lengths):
            clock.now += 0.002 * len(lengths) + 0.001 * sum(lengths)
            return x

    made = profile({"llm": OneByOne()}, make_input, {"llm": [2, 4, 8]}, model, most_tokens=8)
    # A token takes 1 + 2 / 2, 1 + 2 / 4 and 1 + 2 / 8 ms in sequences of 2, 4 and 8. The smallest value, 1.25, is
    # linear.
    units = units_of(made)
    assert units["llm_linear"]["tokens"] == [2, 4, 8]
    assert units["llm_linear"]["forward_s"] == pytest.approx([0.0025, 0.005, 0.010])
    assert units["llm_attention"]["tokens"] == [2, 8, 8]
    assert units["llm_attention"]["forward_s"] == pytest.approx([2 * 0.00075, 8 * 0.00025, 0], abs=1e-12)


def test_backwards_are_split_on_request(clock, model):
    made = profile({"llm": Layer(clock)}, make_input, {"llm": [4]}, model, most_tokens=8, split=True)
    t = [TOKEN * n + PAIR * 4 * n for n in (4, 8)]
    linear = units_of(made)["llm_linear"]
    assert linear["backward_input_s"] == pytest.approx([2 * x for x in t])
    assert linear["backward_weight_s"] == pytest.approx([3 * x for x in t])


def test_only_trained_parts_have_a_backward(clock, model):
    # Nothing before the encoder's first layer trains, nor do its own weights, so it has no backward. The connector's
    # input needs no gradient, so all of its backward (3 t) is for weights.
    modules = {"encoder": Layer(clock).requires_grad_(False), "connector": Layer(clock), "head": Layer(clock)}
    samples = {"encoder": [4], "llm": [4]}
    units = units_of(profile(modules, make_input, samples, model, most_tokens=4))
    t = 4 * TOKEN + 16 * PAIR
    assert units["encoder_linear"]["forward_s"] == pytest.approx([t])
    assert units["encoder_linear"]["backward_input_s"] == units["encoder_linear"]["backward_weight_s"] == [0]
    assert units["connector"]["backward_input_s"] == [0]
    assert units["connector"]["backward_weight_s"] == pytest.approx([3 * t])
    assert units["head"]["backward_input_s"] == pytest.approx([2.5 * t])
    assert units["embedding"]["forward_s"] == [0]
    # These are all layers of an LLM, with nothing before them: the input is tokens.
    units = units_of(profile({"llm": (Layer(clock), 2)}, make_input, samples, model, most_tokens=4))
    assert units["llm_linear"]["backward_input_s"] == [0]
    assert units["llm_linear"]["backward_weight_s"] == pytest.approx([3 * t / 2])


@pytest.mark.parametrize("wrap", [lambda x: (x, None), lambda x: {"hidden": x, "cache": None}])
def test_a_module_may_return_more_than_a_tensor(clock, model, wrap):
    class Wraps(Layer):
        def forward(self, x, lengths):
            return wrap(super().forward(x, lengths))

    units = units_of(profile({"head": Wraps(clock)}, make_input, {"llm": [4]}, model, most_tokens=4))
    t = 4 * TOKEN + 16 * PAIR
    assert units["head"]["forward_s"] == pytest.approx([t])
    assert units["head"]["backward_weight_s"] == pytest.approx([3 * t])


def test_medians_leave_outliers_out_and_notes_name_them(clock, model):
    calls = []

    class Stutters(Layer):
        def forward(self, x, lengths):
            calls.append(1)
            # The last of two warm-up rounds and five measured ones.
            clock.now += 1.0 if len(calls) == 7 else 0.001
            return x * self.weight

    made = profile(
        {"llm": Stutters(clock)},
        make_input,
        {"llm": [4]},
        model,
        most_tokens=4,
        repetitions=5,
        optimizer=None,
    )
    assert units_of(made)["llm_linear"]["forward_s"] == pytest.approx([0.001])
    slow = "llm, 4 tokens in 1 sequences, forward: 1 of 5 rounds took up to 1000.0 medians"
    assert slow in made.notes


def test_bytes_kept_are_counted_without_parameters(model):
    # Linear keeps its input, 8 floats per token, and ReLU its output, 16 floats. The weight and the sum between are not
    # kept.
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
    made = profile(
        {"head": module, "llm": (torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)]), 4)},
        lambda part, lengths: torch.ones(sum(lengths), 8),
        {"llm": [4, 6]},
        model,
        most_tokens=12,
        repetitions=1,
    )
    kept = made["tables"][0]["activation_bytes_per_token"]
    assert kept["head"] == (8 + 16) * 4
    # Each of four layers keeps its input of 8 floats. With full recomputation it keeps the same.
    assert kept["llm_layer"] == [32, 32, 32]
    assert kept["embedding"] == 0
    assert made["value_bytes"] == 4 and made["dtype"] == "f32"


def test_modules_are_left_unchanged(model):
    module = torch.nn.Linear(4, 4)
    before = module.weight.clone()
    profile(
        {"llm": module}, lambda part, lengths: torch.ones(sum(lengths), 4), {"llm": [4]}, model, most_tokens=4
    )
    assert torch.equal(module.weight, before) and module.weight.grad is None


def profile_on(rank, world, model, out):
    return dict(
        profile(
            {"llm": torch.nn.Linear(4, 4)},
            lambda part, lengths: torch.ones(sum(lengths), 4),
            {"llm": [4]},
            model,
            out=out,
            most_tokens=8,
        )
    )


def test_links_are_measured_between_ranks(model, tmp_path):
    out = tmp_path / "profile.json"
    made = run_ranks(2, profile_on, model, str(out))
    assert json.loads(out.read_text()) == made[0]
    assert made[0]["settings"]["busy_ranks"] == 2
    assert [line["ranks"] for line in made[0]["all_reduce"]] == [2]
    # 4 MiB take some time on any machine.
    for line in (made[0]["message"], made[0]["all_reduce"][0]):
        assert line["start_s"] + line["s_per_byte"] * (1 << 22) > 0


@pytest.mark.parametrize(
    "modules, samples, options, message",
    [
        ({}, {}, {}, "modules: expected some of patches, .*, found none"),
        ({"decoder": torch.nn.Identity()}, {}, {}, "modules: expected some of patches, .*, found 'decoder'"),
        (
            {"head": (torch.nn.Identity(), 2)},
            {},
            {},
            "modules\\['head'\\]: expected one module or a number of layers",
        ),
        ({"llm": torch.nn.Identity()}, {"encoder": [3]}, {}, "samples\\['llm'\\]: .* found none"),
        ({"llm": torch.nn.Identity()}, {"llm": [0, 3]}, {}, "samples\\['llm'\\]: .* found \\[0\\]"),
        ({"llm": torch.nn.Identity()}, {"llm": [30]}, {"most_tokens": 20}, "most_tokens: .* 30, found 20"),
        ({"llm": torch.nn.Identity()}, {"llm": [3]}, {"repetitions": 0}, "repetitions: expected at least 1"),
    ],
)
def test_unmeasurable_modules_are_rejected(model, modules, samples, options, message):
    with pytest.raises(dflop.InputError, match=message):
        profile(modules, make_input, samples, model, **options)


def test_a_file_of_another_kind_is_no_model(source):
    with pytest.raises(dflop.InputError, match="schema 'dflop.model', found 'dflop.plan'"):
        profile(
            {"llm": torch.nn.Identity()},
            make_input,
            {"llm": [3]},
            source / "traces" / "plans" / "tiny-vlm-pp2.json",
        )
