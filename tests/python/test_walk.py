"""Runs ranks under a plan: gradients and norm equal one process's, to the last bit, for plans made by hand and
by planners. Numbers are whole and ranks are threads. tests/python/torch repeats this with torch on processes."""

import copy
import random

import pytest
from plans import TIED_MODEL, make_plan, make_program, make_samples, planned, random_plan, ranks_of, write_cluster
from whole_numbers import alone, run

import dflop
from dflop.torch._program import Program


def check(plan, program, samples, clip_norm=None, tied=False):
    """Compares all ranks' gradients, loss and norm with one process."""
    program = Program(program)
    works = run(program, samples, clip_norm, tied)
    loss, want = alone(program, samples, tied)
    tokens = works[0].tokens
    assert sum(work.loss for work in works) == loss * tokens, plan
    norm_squared = sum(g * g for g in want.values())
    scale = 1
    if clip_norm is not None:
        assert all(work.norm_squared == norm_squared for work in works), plan
        scale = works[0].scale
        assert scale == pytest.approx(min(1.0, clip_norm / float(norm_squared) ** 0.5))
    seen = set()
    for work in works:
        assert sorted(work.results) == work.own.stages, plan
        for gradients in work.results.values():
            assert gradients == {name: scale * want[name] for name in gradients}, plan
            seen |= set(gradients)
    assert seen == set(want), plan
    holders = [work for work in works if len(program.stages) - 1 in work.own.stages]
    assert [work.losses for work in works] == [int(work in holders) for work in works]


def test_gradients_of_random_plans_equal_one_process(server):
    for seed in range(60):
        rng = random.Random(seed)
        plan = random_plan(rng)
        plan["clip_gradients"] = seed % 2 == 1
        samples = make_samples(plan["gbs"], seed)
        program = make_program(plan, samples, server)
        check(plan, program, samples, rng.choice([0.5, 1e9]) if plan["clip_gradients"] else None)


@pytest.mark.parametrize("order, chunks", [("zb-v", 2), ("interleaved", 2), ("interleaved", 3)])
def test_gradients_of_orders_with_chunks_equal_one_process(order, chunks, server):
    for dp, clips, microbatches in ((1, False, 4), (1, True, 5), (2, True, 4), (2, False, 5)):
        plan = make_plan("uniform", order, (2, dp), (2, dp), microbatches, 12, bucket=2000 * (dp - 1), chunks=chunks)
        plan["clip_gradients"] = clips
        samples = make_samples(12, dp)
        check(plan, make_program(plan, samples, server), samples, 0.5 if clips else None)


def test_gradients_of_planned_plans_equal_one_process(server, tmp_path):
    plans = planned(tmp_path)
    assert {plan["layout"] for _, plan in plans} == {"uniform", "disaggregated", "colocated"}
    for number, (options, plan) in enumerate(plans):
        samples = make_samples(plan["gbs"], number)
        program = make_program(plan, samples, server)
        check(options, program, samples, 0.5 if options["clip_gradients"] else None)


@pytest.mark.parametrize("dp, order, clips", [(1, "1f1b", False), (1, "zb-h1", True), (2, "1f1b", True)])
def test_both_ends_of_a_tied_matrix_get_the_sum_of_their_gradients(dp, order, clips, server, tmp_path):
    samples = [dflop.make_sample(3 + i % 5, name=str(i)) for i in range(8)]
    dflop.write_samples(tmp_path / "samples.json", samples)
    plan = dflop.plan(
        model=TIED_MODEL,
        cluster=write_cluster(tmp_path, 2 * dp),
        data=tmp_path / "samples.json",
        gbs=8,
        tp=1,
        pp=2,
        dp=dp,
        microbatches=2,
        pipeline_schedule=order,
        clip_gradients=clips or None,
    )
    assert ranks_of(plan) == 2 * dp
    program = make_program(plan, samples, server)
    assert sum(collective["sum"] == "joined_ends" for collective in program["collectives"]) == dp
    check(plan, program, samples, 0.5 if clips else None, tied=True)


def test_a_confused_sum_is_detected(server):
    # If the norm's sum in a plan of two dp ranks were read as a sum of the last stage's gradients, it would double
    # them.
    plan = make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 8)
    plan["clip_gradients"] = True
    samples = make_samples(8, 0)
    program = make_program(plan, samples, server)
    assert [collective["sum"] for collective in program["collectives"]] == ["gradients", "norm"]
    wrong = copy.deepcopy(program)
    wrong["collectives"][1]["sum"] = "gradients"
    with pytest.raises(AssertionError, match="gives to .* twice"):
        check(plan, wrong, samples)


@pytest.mark.parametrize(
    "plan, firsts",
    [
        # Ten layers, four of the encoder and then six of the LLM, in four chunks of 3, 3, 2 and 2.
        (make_plan("uniform", "interleaved", (2, 1), (2, 1), 4, 12, chunks=2), [(0, 0), (3, 0), (4, 2), (4, 4)]),
        # Encoder stages of 2 and 2 layers, followed by LLM stages of 3 and 3.
        (make_plan("disaggregated", "1f1b", (2, 1), (2, 1), 4, 12), [(0, 0), (2, 0), (4, 0), (4, 3)]),
    ],
)
def test_stages_know_the_numbers_of_their_first_layers(plan, firsts, server):
    stages = Program(make_program(plan, make_samples(12, 0), server)).stages
    assert [(stage.first_encoder_layer, stage.first_llm_layer) for stage in stages] == firsts
    for stage, after in zip(stages, stages[1:]):
        assert stage.first_encoder_layer + stage.encoder_layers == after.first_encoder_layer
        assert stage.first_llm_layer + stage.llm_layers == after.first_llm_layer


@pytest.mark.parametrize(
    "what, found", [(None, "none, as with an older dflop"), ("losses", "found 'losses'"), ("op", "found 'all_gather'")]
)
def test_programs_of_other_versions_are_rejected(what, found, server):
    plan = make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 8)
    program = make_program(plan, make_samples(8, 0), server)
    if what == "op":
        program["groups"][1]["instructions"][-1][0] = "all_gather"
    elif what is None:
        del program["collectives"][0]["sum"]
    else:
        program["collectives"][0]["sum"] = what
    with pytest.raises(dflop.InputError, match=found):
        Program(program)
