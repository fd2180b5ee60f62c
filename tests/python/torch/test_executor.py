import json
import math
import os
import random
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
import vlm
from plans import TIED_MODEL, held, make_plan, make_program, make_samples, planned, random_plan, ranks_of, write_cluster
from ranks import RanksFailed, run_ranks

import dflop
from dflop.torch import Executor, NonFiniteNorm, RankFailed
from dflop.torch._board import Board, PeerLost
from dflop.torch._program import Program
from dflop.torch._reduction import StageReduction
from dflop.torch._version import require_split_backwards

def gradients_of(rank, world, cases):
    """Returns, for each (program, batch, clip norm, whether ends are tied), the result and the gradients of this rank's
    stages after a step. A second step adds the same gradients, which doubles each exactly."""
    found = []
    for program, batch, clip_norm, tied in cases:
        stages = Program(program).stages
        executor = Executor(
            program,
            lambda stage: vlm.StageModule(stages, stage, batch[1], rank, tied),
            inputs=vlm.inputs,
            loss=vlm.loss,
            clip_norm=clip_norm,
            tied=vlm.end_of if tied else None,
        )
        result = executor.step(program, batch)
        modules = executor.modules
        once = {s: [p.grad if p.grad is None else p.grad.clone() for p in m.parameters()] for s, m in modules.items()}
        executor.step(program, batch)
        twice = [p.grad for module in modules.values() for p in module.parameters()]
        for gradient, both in zip([g for gradients in once.values() for g in gradients], twice):
            assert both is None if gradient is None else torch.equal(2 * gradient, both)
        found.append((result, once))
        executor.close()
    return found


@pytest.fixture(autouse=True)
def one_thread():
    """Gives this process one thread, like the ranks: sums over several threads round differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check_gradients(plans, dtype, tolerances, server, clip_norm=None, samples=None):
    """Compares plans' gradients on all ranks with one process's: largest difference over the largest value.
    Plans that clip do so at `clip_norm`. `samples` are for a text model whose ends are tied."""
    by_ranks, tied = {}, samples is not None
    for seed, (plan, tolerance) in enumerate(zip(plans, tolerances)):
        batch = (samples or make_samples(plan["gbs"], seed), dtype)
        program = make_program(plan, batch[0], server)
        most = clip_norm if plan.get("clip_gradients") else None
        by_ranks.setdefault(ranks_of(plan), []).append((plan, tolerance, program, batch, most, tied))
    for ranks, cases in by_ranks.items():
        found = run_ranks(ranks, gradients_of, [case[2:] for case in cases], timeout=240)
        for number, case in enumerate(cases):
            check_case(*case[:5], [found[rank][number] for rank in range(ranks)], tied)


def check_case(plan, tolerance, program, batch, clip_norm, found, tied):
    stages = range(len(program["stages"]))
    seeds = {s: min(g["rank"] for g in program["groups"] if s in held(g)) for s in stages}
    mean, modules = vlm.one_process(Program(program), batch, seeds, tied)
    weights = {parameter for module in modules for parameter in module.parameters() if parameter.grad is not None}
    norm = torch.nn.utils.clip_grad_norm_(weights, math.inf if clip_norm is None else clip_norm).item()
    texts = [s["llm_tokens"] - s["encoder_output_tokens"] for s in batch[0]]
    for result, of_stages in found:
        assert result.tokens == sum(texts), plan
        assert result.loss == pytest.approx(mean, rel=1e-6), plan
        assert result.norm == (None if clip_norm is None else pytest.approx(norm, rel=1e-6)), plan
        for stage, gradients in of_stages.items():
            for got, parameter in zip(gradients, modules[stage].parameters()):
                want = parameter.grad
                assert (got is None) == (want is None), (plan, stage, parameter.shape)
                if want is not None:
                    difference = (got - want).abs().max().item()
                    assert difference <= tolerance * want.abs().max().item(), (plan, stage, got.shape)


PLANS = [
    make_plan("uniform", "1f1b", (1, 1), (1, 1), 3, 9),
    make_plan("uniform", "gpipe", (3, 1), (3, 1), 4, 12),
    make_plan("uniform", "1f1b", (3, 1), (3, 1), 4, 12),
    make_plan("uniform", "zb-h1", (3, 1), (3, 1), 5, 12),
    make_plan("uniform", "zb-v", (2, 1), (2, 1), 4, 12, chunks=2),
    make_plan("uniform", "interleaved", (2, 1), (2, 1), 4, 12, chunks=2),
    make_plan("disaggregated", "1f1b", (1, 1), (2, 1), 4, 12),
]


def test_gradients_with_one_dp_rank_are_bit_identical_to_one_process(server):
    # Microbatches add up in the same order on each rank. A split backward sums within a microbatch in another order.
    tolerances = [1e-14 if plan["schedule"].startswith("zb") else 0.0 for plan in PLANS]
    check_gradients(PLANS, torch.float64, tolerances, server)


def test_gradients_of_random_plans_equal_one_process(server):
    plans = [random_plan(random.Random(seed)) for seed in range(20)]
    check_gradients(plans, torch.float32, [1e-6] * len(plans), server)


def test_gradients_of_planned_plans_equal_one_process(server, tmp_path):
    # Half of the planners' plans clip, far below the norm of the model's gradients.
    plans = [plan for _, plan in planned(tmp_path)]
    assert sum(bool(plan.get("clip_gradients")) for plan in plans) == 20
    check_gradients(plans, torch.float64, [1e-12] * len(plans), server, clip_norm=0.01)


def test_a_norm_without_a_limit_changes_no_gradient(server):
    plan = {**make_plan("uniform", "1f1b", (2, 2), (2, 2), 2, 8), "clip_gradients": True}
    check_gradients([plan], torch.float64, [1e-12], server, clip_norm=math.inf)


def test_tied_ends_on_two_ranks_are_one_matrix(server, tmp_path):
    samples = [{**dflop.make_sample(3 + i % 5), "id": f"sample {i}"} for i in range(8)]
    dflop.write_samples(tmp_path / "samples.json", samples)
    asked = {"model": TIED_MODEL, "data": tmp_path / "samples.json", "gbs": 8, "tp": 1, "pp": 2, "microbatches": 2}
    orders = [(1, "1f1b", None), (1, "zb-h1", True), (2, "1f1b", True)]
    plans = [
        dflop.plan(
            **asked, dp=dp, cluster=write_cluster(tmp_path, 2 * dp), pipeline_schedule=order, clip_gradients=clips
        )
        for dp, order, clips in orders
    ]
    check_gradients(plans, torch.float64, [1e-12] * 3, server, clip_norm=0.01, samples=samples)


class SometimesDeaf(torch.nn.Module):
    """A stage that ignores its input when told to."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, rows, deaf):
        return self.weight.expand(rows, 3) if deaf else x * self.weight


def gradients_of_deaf_stages(rank, world, program):
    def inputs(part, batch):
        return {"rows": len(part.samples or part.pieces), "deaf": part.stage == 0 or part.microbatch % 2 == 1}

    def loss(output, part, batch):
        return output.sum(), 1

    executor = Executor(program, lambda stage: SometimesDeaf(), inputs=inputs, loss=loss)
    executor.step(program, None)
    return {stage: module.weight.grad.tolist() for stage, module in executor.modules.items()}


@pytest.mark.parametrize("order", ["1f1b", "zb-h1"])
def test_a_stage_that_does_not_use_its_input_keeps_its_gradients(order, server):
    # Four microbatches of one sample, each of one row: stage 1 uses its input in microbatches 0 and 2, so the gradient
    # of stage 0 counts 2 of 4 tokens, and the gradient of stage 1 counts all four.
    plan = make_plan("uniform", order, (2, 1), (2, 1), 4, 4)
    plan["encoder"]["layers"], plan["llm"]["layers"] = [4, 0], [1, 5]  # both stages have rows of the LLM
    samples = [dflop.make_sample(1) for _ in range(4)]
    program = make_program(plan, samples, server)
    found = run_ranks(2, gradients_of_deaf_stages, program)
    assert found == [{0: [0.5] * 3}, {1: [1.0] * 3}]


class SometimesAdapted(torch.nn.Module):
    """A stage that uses one of its parameters only when told to."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.adapter = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, rows, adapts):
        y = self.weight.expand(rows, 3) if x is None else x * self.weight
        return y + self.adapter if adapts else y


def adapters_after_steps(rank, world, program):
    """Returns the adapter after each of three steps. In the first two, one microbatch of dp rank 1 uses it."""
    step = 0

    def inputs(part, batch):
        adapts = step < 2 and part.dp_rank == 1 and part.microbatch == 0
        return {"rows": len(part.samples or part.pieces), "adapts": adapts}

    executor = Executor(
        program,
        lambda stage: SometimesAdapted(),
        inputs=inputs,
        loss=lambda output, part, batch: (output.sum(), 1),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1),
    )
    found = []
    for step in range(3):
        executor.step(program, None)
        found.append(executor.modules[0].adapter.tolist())
    return found


@pytest.mark.parametrize("bucket", [None, 1])
def test_optimizers_skip_parameters_that_no_rank_used(bucket, server):
    # AdamW with the same gradient twice, 1 of 4 tokens, steps by its learning rate after subtracting lr * weight_decay
    # = 0.01 of the value: 1 - 0.01 - 0.1 = 0.89, then 0.89 * 0.99 - 0.1. In the third step no rank uses the adapter.
    # With a gradient of zeros it would still move by its momentum.
    plan = make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 4)
    if bucket is not None:
        plan["gradient_bucket_bytes"] = bucket
    program = make_program(plan, [dflop.make_sample(1) for _ in range(4)], server)
    want = [[pytest.approx(value, abs=1e-5)] * 3 for value in (0.89, 0.7811, 0.7811)]
    assert run_ranks(2, adapters_after_steps, program) == [want, want]


class Twice(torch.nn.Module):
    """A stage that uses its layer twice, with one name or two."""

    def __init__(self, stage, names):
        super().__init__()
        torch.manual_seed(stage)
        layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
        self.layers = torch.nn.ModuleList([layer] * names)

    def forward(self, x, rows):
        y = torch.ones(rows, 3) if x is None else x
        y = y + self.layers[0](y)
        return y + self.layers[-1](y)


def gradients_of_twice(rank, world, program, names):
    executor = Executor(
        program,
        lambda stage: Twice(stage.index, names),
        inputs=lambda part, batch: {"rows": len(part.samples or part.pieces)},
        loss=lambda output, part, batch: (output.square().sum(), 1),
    )
    executor.step(program, None)
    return {stage: [p.grad.tolist() for p in module.parameters()] for stage, module in executor.modules.items()}


@pytest.mark.filterwarnings("ignore:stages")
def test_stages_that_use_a_parameter_twice_are_not_split(server):
    def found(order, names):
        plan = make_plan("uniform", order, (2, 1), (2, 1), 4, 4)
        plan["encoder"]["layers"], plan["llm"]["layers"] = [4, 0], [1, 5]  # both stages have rows of the LLM
        program = make_program(plan, [dflop.make_sample(1) for _ in range(4)], server)
        return run_ranks(2, gradients_of_twice, program, names)

    whole, split = found("1f1b", 2), found("zb-h1", 2)
    for rank in range(2):
        for gradient, want in zip(split[rank][rank], whole[rank][rank]):
            assert torch.allclose(torch.tensor(gradient), torch.tensor(want), rtol=1e-6)
    with pytest.raises(RanksFailed, match="uses a parameter more than once, and torch cannot split such a backward"):
        found("zb-h1", 1)


def one_after_the_other(rank, world, plan, program, batch):
    """Returns the losses of executors that were closed, the threads that they left, and their messages afterwards."""
    losses, threads = [], []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            executor = Executor(
                plan,
                lambda stage: vlm.StageModule(Program(program).stages, stage, batch[1], 0),
                inputs=vlm.inputs,
                loss=vlm.loss,
            )
        losses.append(executor.step(program, batch).loss)
        executor.close()
        threads.append(len(os.listdir("/proc/self/task")))
    try:
        executor.step(program, batch)
    except dflop.InputError as error:
        return losses, threads, [str(one.message) for one in said], str(error)


def test_a_closed_executor_leaves_nothing(server):
    plan = make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 4)
    plan["zero1"] = True
    samples = make_samples(4, 0)
    program = make_program(plan, samples, server)
    for rank, found in enumerate(run_ranks(2, one_after_the_other, plan, program, (samples, torch.float32))):
        losses, threads, warned, refused = found
        assert losses[0] == losses[1] == losses[2]
        assert threads[1] == threads[2], "each executor had groups of its own, with threads"
        assert any("zero1=False) plans for whole states" in text for text in warned) == (rank == 0), "the first rank reads the plan"
        assert "it was closed" in refused


def refusals(rank, world, cases):
    """Returns the error of each (program, options) that Executor rejects."""
    found = []
    for program, options in cases:
        try:
            Executor(program, lambda stage: torch.nn.Linear(1, 1), inputs=None, loss=None, **options)
        except dflop.InputError as error:
            found.append(str(error))
    return found


def test_arguments_that_contradict_the_plan_are_rejected(server, tmp_path):
    samples = make_samples(4, 0)
    plain = make_plan("uniform", "1f1b", (1, 1), (1, 1), 2, 4)
    clips = {**plain, "clip_gradients": True}
    texts = [dflop.make_sample(3 + i, name=str(i)) for i in range(4)]
    two = make_plan("uniform", "1f1b", (2, 1), (2, 1), 2, 4)
    plain, clips, two = (make_program(plan, samples, server) for plan in (plain, clips, two))
    cases = [(clips, {}), (clips, {"clip_norm": 0.0}), (plain, {"clip_norm": 1.0}), (two, {})]
    ((no_norm, zero, no_plan, ranks),) = run_ranks(1, refusals, cases)
    assert "clip_norm: expected the max norm of gradients, because the plan has clip_gradients, found none" in no_norm
    assert "clip_norm: expected a number above 0 (math.inf clips nothing), found 0.0" in zero
    assert "clip_norm: expected a plan with clip_gradients" in no_plan
    assert "expected the 2 ranks of the plan, found a process group of 1" in ranks

    dflop.write_samples(tmp_path / "texts.json", texts)
    asked = {"model": TIED_MODEL, "data": tmp_path / "texts.json", "gbs": 4, "tp": 1, "pp": 2, "dp": 1}
    tied = make_program(dflop.plan(**asked, cluster=write_cluster(tmp_path, 2)), texts, server)
    v = make_plan("uniform", "zb-v", (2, 1), (2, 1), 4, 12, chunks=2)
    v = make_program(v, make_samples(12, 0), server)
    for untied, no_pair in run_ranks(2, refusals, [(tied, {}), (v, {"tied": vlm.end_of})]):
        assert "tied: expected a function tied(module, stage)" in untied and "found none" in untied
        assert "tied: expected a plan that sums embedding and head, or has both in one stage" in no_pair


def test_unsupported_plans_are_rejected(server, tmp_path):
    plain = make_plan("disaggregated", "1f1b", (1, 2), (1, 1), 2, 4)
    dflop.write_samples(tmp_path / "samples.json", make_samples(4, 0))
    asked = {"model": "small-vlm", "cluster": write_cluster(tmp_path, 2), "data": tmp_path / "samples.json", "gbs": 4}
    plans = [
        {**plain, "reshard": "hub"},
        {**plain, "llm": {"tp": 2, "pp": 1, "dp": 1, "layers": [6]}},
        dict(dflop.plan(**asked, tp=1, layout="shared")),
    ]
    hub, tp, shared = run_ranks(1, refused_plans, plans)[0]
    assert "expected a plan whose encoder and LLM exchange rows directly, found reshard 'hub'" in hub
    assert "expected tp 1, because a stage's module runs on one rank, found tp 2" in tp
    assert "found a shared plan: dflop.plan(..., no_shared=True) excludes such plans" in shared


def refused_plans(rank, world, plans):
    """Returns the errors of Executors for plans that they reject."""
    return [refused_plan(plan) for plan in plans]


def refused_plan(plan):
    with pytest.raises(dflop.DflopError) as error:
        Executor(plan, lambda stage: torch.nn.Linear(1, 1), inputs=None, loss=None)
    return str(error.value)


def shares_a_parameter(rank, world, program):
    shared = torch.nn.Linear(2, 2)
    Executor(program, lambda stage: torch.nn.Sequential(shared), inputs=None, loss=None)


def test_stages_that_share_a_parameter_are_rejected(server):
    plan = make_plan("uniform", "interleaved", (1, 1), (1, 1), 2, 4, chunks=2)
    with pytest.raises(RanksFailed) as failed:
        run_ranks(1, shares_a_parameter, make_program(plan, make_samples(4, 0), server))
    assert "expected modules that share no parameter, found 0.weight of stage 1 also in stage 0" in failed.value.failures[0]


class Twin(torch.nn.Module):
    """A stage whose copies on two dp ranks differ in one property."""

    def __init__(self, differs):
        super().__init__()
        names = ("b", "a") if differs == "order" else ("a", "b")
        for name in names:
            setattr(self, name, torch.nn.Linear(2, 3 if differs == "shape" and name == "b" else 2))
        self.b.to(torch.float64 if differs == "dtype" else torch.float32)
        self.b.bias.requires_grad_(differs != "frozen")
        if differs == "count":
            self.register_buffer("more", torch.zeros(2))


def refusals_of_twins(rank, world, program, differences):
    said = []
    for differs in differences:
        try:
            Executor(program, lambda stage: Twin(differs if rank == 1 else ""), inputs=vlm.inputs, loss=vlm.loss).close()
        except dflop.InputError as error:
            said.append(str(error))
    return said


def test_modules_that_differ_over_dp_ranks_are_rejected_on_all(server):
    # In order: a.weight, a.bias, b.weight, b.bias, 0 to 3. All ranks continue, as none waits for another.
    plan = make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 4)
    program = make_program(plan, make_samples(4, 0), server)
    differs = "b.%s a trained torch.float32 of shape %s on rank 0, found a %s torch.%s of shape %s on rank 1"
    expected = {
        "": None,
        "shape": differs % ("weight", "(2, 2)", "trained", "float32", "(3, 2)"),
        "dtype": differs % ("weight", "(2, 2)", "trained", "float64", "(2, 2)"),
        "frozen": differs % ("bias", "(2,)", "frozen", "float32", "(2,)"),
        "order": "a.weight as number 0 on rank 0, found b.weight on rank 1",
        "count": "nothing more as number 4 on rank 0, found more on rank 1",
    }
    begin = "stages: expected the same parameters of stage 0 in the same order on all of its dp ranks: "
    said = [begin + text for text in expected.values() if text is not None]
    assert run_ranks(2, refusals_of_twins, program, list(expected)) == [said, said]


def test_split_backwards_need_a_new_torch():
    require_split_backwards("Executor: ... needs", "2.14.0")
    with pytest.raises(dflop.DflopError, match=r"torch 2.14 or newer, found 2.11.0\+cpu.*pipeline_schedule='1f1b'"):
        require_split_backwards("Executor: ... needs", "2.11.0+cpu")


def trains_f16(rank, world, program):
    with pytest.raises(RankFailed, match="expected f32, bf16 or f64 to train, found f16: weight of stage 0"):
        Executor(program, lambda stage: torch.nn.Linear(2, 2).half(), inputs=None, loss=None)
    os._exit(0)  # without torch.distributed there is nothing to tear down together


def test_weights_in_f16_are_rejected(server):
    plan = make_plan("uniform", "1f1b", (1, 1), (1, 1), 2, 4)
    with pytest.raises(RanksFailed, match="ended with exit code 0"):  # not with the error of pytest.raises
        run_ranks(1, trains_f16, make_program(plan, make_samples(4, 0), server))


def drawn_batches(rank, world, plan, samples):
    """Returns the batches of the first rank's sampler from batches(), and the error of a sampler that fails."""
    program = dflop.PlanSampler(plan, samples)
    executor = Executor(plan, lambda stage: torch.nn.Linear(1, 1), inputs=None, loss=None)
    drawn = [(batch.step, batch.indices) for batch in executor.batches(program if rank == 0 else None)]
    try:
        list(executor.batches(dflop.PlanSampler(plan, samples, method="best") if rank == 0 else None))
    except dflop.InputError as error:
        return drawn, str(error)


def test_all_ranks_get_the_first_ranks_batches(server):
    plan = make_plan("uniform", "1f1b", (2, 1), (2, 1), 2, 4)
    samples = make_samples(13, 0)
    wanted = [(batch.step, batch.indices) for batch in dflop.PlanSampler(plan, samples)]
    assert len(wanted) == 3
    for drawn, error in run_ranks(2, drawn_batches, plan, samples):
        assert drawn == wanted
        assert "best" in error


def states_of_ranks(rank, world, plan, samples, state):
    """Returns the states of a rank's samplers: after one batch, after all, and in another epoch."""
    sampler = dflop.PlanSampler(plan, samples)
    sampler.load_state_dict(state)
    executor = Executor(plan, lambda stage: torch.nn.Linear(1, 1), inputs=None, loss=None)
    states = []
    for batch in executor.batches(sampler):
        states.append(sampler.state_dict())
    states.append(sampler.state_dict())
    sampler.set_epoch(2)
    for batch in executor.batches(sampler):
        states.append(sampler.state_dict())
        break
    return [(one["epoch"], one["done"]) for one in states], sampler.log


def test_samplers_of_all_ranks_follow_the_first(server):
    plan = make_plan("uniform", "1f1b", (2, 1), (2, 1), 2, 4)
    samples = make_samples(13, 0)  # three batches of four, one of which is done
    state = dflop.PlanSampler(plan, samples).state_dict()
    state.update(epoch=1, done=1)
    expected = [(1, 2), (1, 3), (1, 3), (2, 1)]
    assert run_ranks(2, states_of_ranks, plan, samples, state) == [(expected, [])] * 2


def steps_of_samplers(rank, world, plan, others, samples):
    """Returns the errors of a plan's executor for the first batches of samplers of other plans, or None if it accepts
    one."""
    said = []
    for other in others:
        executor = Executor(
            plan,
            lambda stage: vlm.StageModule(executor_stages(plan), stage, torch.float32, 0),
            inputs=vlm.inputs,
            loss=vlm.loss,
        )
        if "groups" in other:  # a program that does not name its order
            program, indices = other, list(range(4))
        else:
            batch = next(executor.batches(dflop.PlanSampler(other, samples)))
            program, indices = batch.program, batch.indices
        try:
            executor.step(program, ([samples[i] for i in indices], torch.float32))
            said.append(None)
        except dflop.InputError as error:
            said.append(str(error))
        executor.close()
    return said


def executor_stages(plan):
    server = dflop.Server()
    opened = server.request("open", {"plan": plan, "program": True}, 60)
    server.close()
    return Program(opened["program"]).stages


def test_programs_of_a_plan_with_another_order_are_rejected(server):
    samples = make_samples(4, 0)
    plan = make_plan("uniform", "1f1b", (2, 1), (2, 1), 2, 4)
    elsewhere = json.loads(json.dumps({**plan, "planner": "another", "cluster": "h100:1"}))
    others = [elsewhere, make_program(plan, samples, server), {**plan, "schedule": "gpipe"}, {**plan, "microbatches": 4}]
    begin = "program: expected a program of the executor's plan, whose "
    end = ": give the PlanSampler the executor's plan"
    order = f"{begin}order is 1f1b, found one of a plan whose order is gpipe{end}"
    count = f"{begin}number of microbatches is 2, found one of a plan whose number of microbatches is 4{end}"
    assert run_ranks(2, steps_of_samplers, plan, others, samples) == [[None, None, order, count]] * 2


def plans_of_ranks(rank, world, cases):
    """Returns the errors of the executor for plans that vary by rank, or None if it was made."""
    said = []
    for plans in cases:
        try:
            Executor(plans[rank], lambda stage: torch.nn.Linear(1, 1), inputs=None, loss=None).close()
            said.append(None)
        except dflop.InputError as error:
            said.append(str(error))
    return said


def test_ranks_with_different_plans_are_rejected(server, tmp_path):
    plan = make_plan("uniform", "1f1b", (3, 1), (3, 1), 3, 6)
    gpipe = {**plan, "schedule": "gpipe"}
    written = tmp_path / "plan.json"
    written.write_text(json.dumps({**plan, "made_by": "somebody else"}, sort_keys=True))
    nowhere, nothing = str(tmp_path / "nowhere.json"), tmp_path / "nothing.json"
    nothing.write_text("[]")
    wide = make_plan("uniform", "1f1b", (3, 1), (3, 1), 3, 6, bucket=2000)
    one, other = (make_program(plan, make_samples(6, seed), server) for seed in range(2))
    moved = {**plan, "encoder": {**plan["encoder"], "layers": [3, 1, 0]}, "llm": {**plan["llm"], "layers": [0, 3, 3]}}
    moved = make_program(moved, make_samples(6, 0), server)
    cases = [
        (plan, str(written), plan),
        (one, one, other),  # programs of two batches
        (plan, gpipe, gpipe),
        (gpipe, gpipe, str(written)),
        (plan, plan, wide),
        (str(written), nowhere, plan),
        (plan, plan, str(nothing)),
        (one, one, moved),
    ]
    text = {key: json.dumps(value) for key, value in plan.items()}
    expected = [
        None,
        None,
        f"plan: schedule: expected one plan on all ranks, found {text['schedule']} on rank 0 and \"gpipe\" on ranks 1, 2",
        f"plan: schedule: expected one plan on all ranks, found \"gpipe\" on rank 0 and {text['schedule']} on rank 2",
        "plan: gradient_bucket_bytes: expected one plan on all ranks, found none on rank 0 and 2000 on rank 2",
        f"plan: expected the plan of rank 0 on all ranks, found on rank 1: {nowhere}: No such file or directory",
        f"plan: expected the plan of rank 0 on all ranks, found on rank 2: {nothing}: expected a file of 'dflop plan --out'",
        "plan: stages: expected one plan on all ranks, found one with the hash ",
    ]
    for said in run_ranks(3, plans_of_ranks, cases):
        for found, wanted in zip(said, expected, strict=True):
            assert found == wanted or (wanted and found and found.startswith(wanted))


def failing_step(rank, world, program, batch, culprit, how):
    """Runs steps. In the second one a rank raises or dies."""
    step = 0

    def inputs(part, batch):
        if rank == culprit and step == 1 and part.microbatch == 1:
            if how == "raises":
                raise ValueError("a picture that is no picture")
            os._exit(9)
        return vlm.inputs(part, batch)

    executor = Executor(
        program,
        lambda stage: vlm.StageModule(Program(program).stages, stage, batch[1], 0),
        inputs=inputs,
        loss=vlm.loss,
    )
    for step in range(4):
        executor.step(program, batch)


@pytest.mark.parametrize("culprit, how", [(0, "raises"), (3, "raises"), (1, "dies"), (4, "dies")])
def test_all_ranks_stop_and_name_the_first_failure(culprit, how, server):
    plan = make_plan("disaggregated", "1f1b", (1, 2), (3, 1), 4, 12, bucket=2000)
    samples = make_samples(12, 0)
    program = make_program(plan, samples, server)
    with pytest.raises(RanksFailed) as failed:
        run_ranks(5, failing_step, program, (samples, torch.float32), culprit, how, timeout=60)
    for rank in range(5):
        text = failed.value.failures[rank].strip().split("\n")[-1]
        if how == "raises":
            assert f"RankFailed: rank {culprit} failed: at step 1, forward of stage" in text
            assert "a picture that is no picture" in text
        elif rank == culprit:
            assert text == "ended with exit code 9"
        else:
            assert f"RankFailed: rank {culprit} failed: rank" in text and "lost it at step 1" in text


def living_on(rank, world, program, folder, how):
    """Lets the second rank fail or close and then live on until the first one has learned of it."""

    def inputs(part, batch):
        if rank == 1 and how == "raises":
            raise ValueError("a picture that is no picture")
        return vlm.inputs(part, batch)

    batch = (make_samples(12, 0), torch.float32)
    executor = Executor(
        program,
        lambda stage: vlm.StageModule(Program(program).stages, stage, batch[1], 0),
        inputs=inputs,
        loss=vlm.loss,
    )
    learned = Path(folder) / "learned"
    failure = None
    try:
        executor.step(program, batch)
        if rank == 1:
            executor.close()
        else:
            executor.step(program, batch)
    except RankFailed as error:
        failure = error
    if rank == 0:
        learned.touch()
    deadline = time.monotonic() + 30
    while rank == 1 and not learned.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert learned.exists(), "the first rank still waits"
    raise failure or AssertionError("nothing failed here")


@pytest.mark.parametrize(
    "how, message",
    [
        ("raises", "rank 1 failed: at step 0, forward of stage 1, microbatch 0: ValueError: a picture"),
        ("closes", "rank 1 failed: it closed its executor after 1 step, but rank 0 is at step 1, receive of stage 0"),
    ],
)
def test_a_waiting_rank_learns_of_a_failure_and_survives(how, message, server, tmp_path):
    # Rank 0 waits for the gradients of its first microbatch, on a connection that torch.distributed keeps open.
    plan = make_plan("uniform", "1f1b", (2, 1), (2, 1), 4, 12)
    program = make_program(plan, make_samples(12, 0), server)
    with pytest.raises(RanksFailed) as failed:
        run_ranks(2, living_on, program, str(tmp_path), how, timeout=60)
    assert message in failed.value.failures[0], failed.value
    assert ("nothing failed here" if how == "closes" else message) in failed.value.failures[1]


class Store:
    """A store of torch.distributed that is empty."""

    def check(self, keys):
        return False


@pytest.mark.parametrize(
    "ranks, lost, said",
    [(2, 1, "rank 0 lost it at step 3 (E: gone)"), (3, None, "one of 1, 2: rank 0 lost it at step 3 (E: gone)")],
)
def test_a_peer_lost_during_a_broadcast_is_one_of_the_others(ranks, lost, said):
    # The first rank, as the source of a broadcast, names only itself as the other end.
    board = object.__new__(Board)
    board._store, board._rank, board._ranks = Store(), 0, ranks
    E = type("E", (Exception,), {})
    assert board._suspect(PeerLost([0], E("gone")), "step 3") == (lost, said)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_skipped_a_step_is_named_by_all_that_waited_too_long(rank):
    # Rank 0 has begun two steps, rank 1 one. It does not matter which of them loses patience first.
    store = {"begun0": b"2", "begun1": b"1"}
    board = object.__new__(Board)
    board._rank, board._ranks = rank, 2
    board._store = type("", (), {"check": lambda _, keys: keys[0] in store, "get": lambda _, key: store[key]})()
    culprit, said = board._suspect(PeerLost([1 - rank], RuntimeError("Timed out waiting 5000ms for recv")), "step 1")
    assert culprit == 1
    assert "it has begun 1 step while rank 0 has begun 2: all ranks must call step() for every batch" in said


def ends_of_ranks(program, folder, *failure):
    """Returns the exit code and last line of each of three ranks that end like scripts. failure is (culprit, how)."""
    path = folder / "program.json"
    path.write_text(json.dumps(program))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    script = Path(__file__).with_name("failing_rank.py")
    package = str(Path(dflop.__file__).parents[1])
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(port), path, *map(str, failure)],
            env={**os.environ, "PYTHONPATH": package},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        errors = [process.communicate(timeout=60)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    said = [[line for line in error.split("\n") if "Error: " in line or "RankFailed: " in line] for error in errors]
    return [(process.returncode, (lines or [""])[-1]) for process, lines in zip(processes, said)]


@pytest.mark.parametrize(
    "culprit, how, reason",
    [
        (1, "dies in a step", "lost it at step 1, all_reduce"),
        (0, "dies in a step", "the store of torch.distributed is gone"),
        (0, "raises in a step", "a picture that is no picture"),
        (2, "raises making modules", "a picture that is no picture"),
        (1, "raises making optimizers", "a picture that is no picture"),
    ],
)
def test_scripts_of_all_ranks_end_with_the_name_of_the_one_that_failed(culprit, how, reason, server, tmp_path):
    # Three dp ranks of one stage meet only in sums, whose errors do not name the lost rank.
    plan = make_plan("uniform", "1f1b", (1, 3), (1, 3), 2, 6)
    program = make_program(plan, [dflop.make_sample(1) for _ in range(6)], server)
    ends = ends_of_ranks(program, tmp_path, culprit, how)
    if how.startswith("dies"):
        assert ends.pop(culprit)[0] == 9
    for code, error in ends:
        assert code == 1, error
        assert f"RankFailed: rank {culprit} failed" in error
        assert reason in error


@pytest.mark.parametrize("culprit", [0, 2])
def test_scripts_of_a_pipeline_end_with_the_name_of_the_one_that_failed(culprit, server, tmp_path):
    plan = make_plan("uniform", "1f1b", (3, 1), (3, 1), 2, 6)
    plan["encoder"]["layers"], plan["llm"]["layers"] = [4, 0, 0], [1, 2, 3]  # all stages have rows of the LLM
    program = make_program(plan, [dflop.make_sample(1) for _ in range(6)], server)
    for code, error in ends_of_ranks(program, tmp_path, culprit, "raises in a step"):
        assert code == 1, error
        assert f"RankFailed: rank {culprit} failed" in error and "a picture that is no picture" in error


class Repeated(torch.nn.Module):
    """A stage with rows of two numbers."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x, rows):
        return self.weight * (torch.ones(rows, 2) if x is None else x)


def wrong_steps(rank, world, programs, what):
    """Runs two steps, the second with an error."""
    step = 0

    def is_wrong(kind):
        return step == 1 and what == kind

    class Wrong(Repeated):
        def forward(self, x, rows):
            y = super().forward(x, rows)
            if x is None and is_wrong("rows"):
                return y[1:]
            return y.to(torch.float64) if x is None and is_wrong("type") else y

    executor = Executor(
        programs[0],
        lambda stage: Wrong(),
        inputs=lambda part, _: {"rows": len(part.samples)},
        loss=lambda output, part, _: (output.sum(), len(output) / 2 if is_wrong("tokens") else len(output)),
    )
    for step in range(2):
        executor.step(programs[1] if rank == 1 and is_wrong("program") else programs[0], None)


@pytest.mark.parametrize(
    "what, message",
    [
        ("rows", "expected 2 rows from the module of stage 0"),
        ("type", "expected rows of torch.float32 and shape (2,) from stage 0, as before, found torch.float64"),
        ("tokens", "loss: expected a whole number of tokens, found 0.5"),
        ("program", "program: expected the program of the other ranks"),
    ],
)
def test_steps_that_would_change_the_result_stop_all_ranks(what, message, server):
    plan = make_plan("uniform", "1f1b", (2, 1), (2, 1), 2, 3)
    plan["encoder"]["layers"], plan["llm"]["layers"] = [4, 0], [1, 5]  # both stages have rows of the LLM
    # One microbatch has the long sample and so one row, the other one two; or the reverse.
    batches = [[dflop.make_sample(tokens) for tokens in lengths] for lengths in ((9, 1, 1), (1, 1, 9))]
    programs = [make_program(plan, samples, server) for samples in batches]
    for program in programs:
        program["messages"] = [rows_by_sample(program, message) for message in program["messages"]]
    with pytest.raises(RanksFailed) as failed:
        run_ranks(2, wrong_steps, programs, what)
    assert all(message in text for text in failed.value.failures.values())
    assert len(failed.value.failures) == 2


def raising(output, part, batch):
    raise KeyError("labels")


LOSSES = {
    "raises": (raising, "step 0, loss of microbatch 0: KeyError: 'labels'"),
    "alone": (
        lambda output, part, batch: output.sum(),
        "loss: expected a function that returns (sum, tokens), found Tensor",
    ),
    "three": (
        lambda output, part, batch: (output.sum(), 1, 2),
        "loss: expected a function that returns (sum, tokens), found 3 values",
    ),
    "number": (lambda output, part, batch: (0.5, 1), "loss: expected the sum as a scalar tensor, found 0.5"),
    "rows": (lambda output, part, batch: (output, 1), "loss: expected the sum as a scalar tensor, found shape (2, 2)"),
    "detached": (
        lambda output, part, batch: (output.sum().detach(), 1),
        "loss: expected a sum that depends on the output, ",
    ),
    "text": (lambda output, part, batch: (output.sum(), "a"), "loss: expected a whole number of tokens, found 'a'"),
}


def wrong_loss(rank, world, program, kind):
    inputs = {"inputs": lambda part, _: {"rows": len(part.samples)}}
    Executor(program, lambda stage: Repeated(), **inputs, loss=LOSSES[kind][0]).step(program, None)


@pytest.mark.parametrize("kind", LOSSES)
def test_a_wrong_loss_is_named(kind, server):
    # Two samples in each of two microbatches: two rows of two numbers.
    program = make_program(make_plan("uniform", "1f1b", (1, 1), (1, 1), 2, 4), [dflop.make_sample(5)] * 4, server)
    with pytest.raises(RanksFailed) as failed:
        run_ranks(1, wrong_loss, program, kind)
    assert "rank 0 failed: at step 0, loss of microbatch 0: " in failed.value.failures[0]
    assert LOSSES[kind][1] in failed.value.failures[0]


def rows_by_sample(program, message):
    """Returns a message with one row for each sample, like the modules above."""
    rows = program["bins"].count(message[2])
    return [*message[:6], rows, rows]


class Scaled:
    """The loss of vlm times `scale`."""

    scale = 1.0

    def __call__(self, output, part, batch):
        total, tokens = vlm.loss(output, part, batch)
        return total * self.scale, tokens


def scaled_executor(program, batch, loss, **options):
    def make_stage(stage):
        return vlm.StageModule(Program(program).stages, stage, batch[1], 0)

    return Executor(program, make_stage, inputs=vlm.inputs, loss=loss, **options)


def with_a_norm_of_nan(rank, world, program, batch):
    """Returns the errors of Executors for a step whose loss is NaN, whether weights stayed, and the norm of the next
    step."""
    found = []
    for options in ({}, {"error_if_nonfinite": False}):
        loss = Scaled()
        loss.scale = math.nan
        executor = scaled_executor(
            program, batch, loss, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), clip_norm=1.0, **options
        )
        weights = [p for module in executor.modules.values() for p in module.parameters()]
        before = [p.detach().clone() for p in weights]
        said = None
        try:
            executor.step(program, batch)
        except NonFiniteNorm as error:
            said = str(error)
        kept = all(torch.equal(p, old) for p, old in zip(weights, before))
        loss.scale = 1.0
        found.append((said, kept, executor.step(program, batch).norm))
        executor.close()
    return found


def test_a_norm_that_is_not_finite_stops_all_optimizers(server):
    plan = {**make_plan("uniform", "1f1b", (2, 1), (2, 1), 2, 4), "clip_gradients": True}
    samples = make_samples(4, 0)
    program = make_program(plan, samples, server)
    for stopped, went_on in run_ranks(2, with_a_norm_of_nan, program, (samples, torch.float32)):
        said, kept, norm = stopped
        assert said.startswith("step 0: expected a finite norm of all gradients, found nan") and kept
        assert norm > 0, "the next step goes on"
        said, kept, norm = went_on
        assert said is None and not kept and math.isnan(norm)


def adds_up(rank, world, program, batch):
    """Returns whether a step whose norm is NaN leaves the previous gradients in their tensors, and whether the next
    step adds to them."""
    loss = Scaled()
    executor = scaled_executor(program, batch, loss, clip_norm=math.inf)
    weights = [p for module in executor.modules.values() for p in module.parameters()]
    executor.step(program, batch)
    held = [p.grad for p in weights]
    before = [g.clone() for g in held]
    loss.scale = math.nan
    with pytest.raises(NonFiniteNorm):
        executor.step(program, batch)
    kept = all(p.grad is g and torch.equal(g, old) for p, g, old in zip(weights, held, before))
    loss.scale = 3.0
    executor.step(program, batch)
    # Three times the first loss: 1 + 3 = 4 times its gradients, up to rounding.
    added = all(p.grad is g and torch.allclose(g, 4 * old) for p, g, old in zip(weights, held, before))
    executor.close()
    return kept, added


def test_steps_without_an_optimizer_add_up_and_one_without_a_norm_adds_nothing(server):
    plan = {**make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 4, bucket=2000), "clip_gradients": True}
    samples = make_samples(4, 0)
    program = make_program(plan, samples, server)
    assert run_ranks(2, adds_up, program, (samples, torch.float64)) == [(True, True)] * 2


def unfreezes(rank, world, program, batch, out):
    """Returns the results of steps after a parameter was unfrozen, with an optimizer that has it and with one that does
    not."""
    said = []
    for given in (True, False):
        executor = Executor(
            program,
            lambda stage: vlm.StageModule(Program(program).stages, stage, batch[1], 0).requires_grad_(stage.index > 0),
            inputs=vlm.inputs,
            loss=vlm.loss,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )
        executor.step(program, batch)
        unfrozen = executor.modules[0].llm[0].own.weight.requires_grad_()
        before = unfrozen.detach().clone()
        if given:
            executor.optimizers[0] = torch.optim.SGD([unfrozen], lr=0.1)
        try:
            executor.step(program, batch)
            said.append(not torch.equal(unfrozen, before))
            executor.close()
        except RankFailed as error:
            said.append(str(error))
    Path(out).write_text(json.dumps(said))
    os._exit(0)  # without torch.distributed there is nothing to tear down together


def test_parameters_that_are_unfrozen_need_an_optimizer(server, tmp_path):
    samples = make_samples(4, 0)
    plan = make_plan("uniform", "interleaved", (1, 1), (1, 1), 2, 4, chunks=2)
    plan["encoder"]["layers"], plan["llm"]["layers"] = [4, 0], [1, 5]  # both stages have layers of the LLM
    program = make_program(plan, samples, server)
    with pytest.raises(RanksFailed, match="ended with exit code 0"):
        run_ranks(1, unfreezes, program, (samples, torch.float32), str(tmp_path / "said"))
    trained, refused = json.loads((tmp_path / "said").read_text())
    assert trained is True
    assert "step 1: InputError: stages: llm.0.own.weight of stage 0 was frozen when the Executor was made" in refused


def warned_of_recomputation(rank, world, plan):
    """Returns the warnings of an executor without and with a statement that the modules recompute."""
    found = []
    for options in ({}, {"modules_recompute": True}):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Executor(plan, lambda stage: torch.nn.Linear(1, 1), inputs=None, loss=None, **options).close()
        found.append([str(one.message) for one in said if "recomputation" in str(one.message)])
    return found


def test_plans_that_recompute_warn_unless_the_modules_do():
    for recomputation in ("full", "selective"):
        plan = {**make_plan("uniform", "1f1b", (1, 1), (1, 1), 2, 4), "recomputation": recomputation}
        ((said, nothing),) = run_ranks(1, warned_of_recomputation, plan)
        assert len(said) == 1 and f"its recomputation is {recomputation}, which the Executor leaves to" in said[0]
        assert nothing == []


def warned_of_buffers(rank, world, program, batch):
    """Returns the warnings in two steps of stages with and without running statistics."""
    found = []
    for norm in (torch.nn.BatchNorm1d, torch.nn.LayerNorm):

        class Normed(vlm.StageModule):
            def __init__(self, stage):
                super().__init__(Program(program).stages, stage, batch[1], 0)
                self.norm = norm(vlm.VOCABULARY)

            def forward(self, x, **arguments):
                return self.norm(super().forward(x, **arguments))

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            executor = Executor(program, Normed, inputs=vlm.inputs, loss=vlm.loss)
            for _ in range(2):
                executor.step(program, batch)
            executor.close()
        found.append([str(one.message) for one in said if "buffers" in str(one.message)])
    return found


def test_buffers_that_differ_over_dp_ranks_warn_once(server):
    samples = make_samples(8, 0)
    program = make_program(make_plan("uniform", "1f1b", (1, 2), (1, 2), 2, 8), samples, server)
    (first, nothing), *others = run_ranks(2, warned_of_buffers, program, (samples, torch.float32))
    assert len(first) == 1 and nothing == []
    assert "buffers of stage 0 (norm.running_mean, norm.running_var, norm.num_batches_tracked)" in first[0]
    assert others == [[[], []]], "the first dp rank says it for all"


def reductions(rank, world):
    """Returns gradients of initially frozen parameters, and the error of a backward that computes one twice."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    for parameter in module.parameters():
        torch.nn.init.ones_(parameter)
    module[0].requires_grad_(False)
    world = torch.distributed.group.WORLD
    reduction = StageReduction(list(module.parameters()), world, 1 << 20, lambda work, *ranks: work.wait())
    module[0].requires_grad_()
    x = torch.full((1, 2), float(rank + 1))
    module(x).sum().backward()
    reduction.reduce()
    sums = [parameter.grad.flatten().tolist() for parameter in module.parameters()]

    again = torch.utils.checkpoint.checkpoint
    x.requires_grad_()
    y = again(module[0], again(module[0], x, use_reentrant=True), use_reentrant=True)
    reduction.start(1)
    reduction.arm()
    try:
        module[1](y).sum().backward()
    except dflop.InputError as error:
        return sums, str(error)


def test_reductions_cover_trained_parameters_and_reject_repeated_gradients():
    # The first layer's weights get x, 1 and 2 on the two ranks, and its biases 1 each. The second layer's weights get 2
    # x + 1 = 3 and 5.
    for sums, error in run_ranks(2, reductions):
        assert sums == [[3.0] * 4, [2.0] * 2, [8.0] * 2, [2.0]]
        assert "use_reentrant=False" in error
