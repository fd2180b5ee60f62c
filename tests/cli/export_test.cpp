// dflop export and dflop plan --export: Python reads their output and gets the same plan.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace export_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

/// Runs an export with stubs of its imports, which accept only the fields that exist there, and prints the
/// values.
constexpr const char* kReader = R"(
import dataclasses, json, sys, types

@dataclasses.dataclass
class ModuleParallelismConfig:
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    expert_tensor_parallel_size: int = 1
    data_parallel_size: int = None
    rank_offset: int = 0

@dataclasses.dataclass
class MegatronMIMOParallelismConfig:
    module_parallelisms: dict
    special_token_ids: dict = dataclasses.field(default_factory=dict)

name = ""
for part in "megatron.bridge.models.megatron_mimo.megatron_mimo_config".split("."):
    name = name + "." + part if name else part
    sys.modules[name] = types.ModuleType(name)
sys.modules[name].ModuleParallelismConfig = ModuleParallelismConfig
sys.modules[name].MegatronMIMOParallelismConfig = MegatronMIMOParallelismConfig
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].bfloat16 = "bfloat16"
made = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), made)
values = {key: made[key] for key in ["WORLD_SIZE", "NUM_MICROBATCHES", "TRAINING", "TRANSFORMER", "DDP", "OPTIMIZER"]}
values["modules"] = {key: dataclasses.asdict(m) for key, m in made["PARALLELISM"].module_parallelisms.items()}
print(json.dumps(values))
)";

struct Export : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  }
  json read_back(const std::string& file) {
    testing::write_all(sandbox.path("read.py"), kReader);
    const std::string command =
        "cd '" + sandbox.path(".").string() + "' && python3 read.py " + file + " > values.json";
    EXPECT_EQ(std::system(command.c_str()), 0) << testing::read_all(sandbox.path(file));
    return json::parse(testing::read_all(sandbox.path("values.json")), nullptr, false);
  }
  RunResult plan(const std::string& options) {
    return sandbox.run(
        "plan --data traces/datasets/vision_mix.csv --modalities image --model llava-ov-llama3-8b "
        "--cluster a100-80g:2 --gbs 64 --iterations 1 --planner search --budget 20000 " +
        options);
  }
};

TEST_F(Export, PythonReadsThePlanBack) {
  for (const std::string wish : {"--dp 2 --encoder-dp 4", "--dp 4 --tp 2 --pp 1 --encoder-dp 4",
                                 "--dp 2 --tp 1 --pp 4 --encoder-dp 2 --recompute full --no-zero1"}) {
    const RunResult planned =
        plan("--layout disaggregated --microbatches 8 --export megatron-mimo --out p.json " + wish);
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    EXPECT_NE(planned.err.find("dflop: not in megatron-mimo: schedule: "), std::string::npos) << planned.err;
    const json wanted = json::parse(testing::read_result(sandbox.path("p.json")));
    testing::write_all(sandbox.path("p.py"), planned.out);
    const json values = read_back("p.py");

    int offset = 0;  // the encoder has the first ranks, followed by the LLM's ranks
    for (const auto& [key, module] : {std::pair{"encoder", "images"}, std::pair{"llm", "language"}}) {
      const json& said = values["modules"][module];
      EXPECT_EQ(said["tensor_model_parallel_size"], wanted[key]["tp"]);
      EXPECT_EQ(said["pipeline_model_parallel_size"], wanted[key]["pp"]);
      EXPECT_EQ(said["data_parallel_size"], wanted[key]["dp"]);
      EXPECT_EQ(said["rank_offset"], offset);
      offset += wanted[key]["tp"].get<int>() * wanted[key]["pp"].get<int>() * wanted[key]["dp"].get<int>();
      int layers = 0;
      for (const int count : wanted[key]["layers"]) layers += count;
      EXPECT_EQ(values["TRANSFORMER"][module]["num_layers"], layers);
      EXPECT_EQ(values["TRANSFORMER"][module]["recompute_granularity"],
                wanted["recomputation"] == "none" ? json() : wanted["recomputation"]);
    }
    EXPECT_EQ(values["WORLD_SIZE"], offset);
    EXPECT_EQ(values["NUM_MICROBATCHES"], 8);
    EXPECT_EQ(values["TRAINING"], json({{"micro_batch_size", 64 / 8}, {"global_batch_size", 64}}));
    EXPECT_EQ(values["DDP"]["use_distributed_optimizer"], wanted["zero1"]);
    EXPECT_EQ(values["OPTIMIZER"]["use_distributed_optimizer"], wanted["zero1"]);

    const RunResult again = sandbox.run("export --plan p.json --out again.py");
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_TRUE(again.out.empty());
    EXPECT_EQ(read_back("again.py"), values) << "the file's plan is the one that was chosen";
    EXPECT_NE(testing::read_all(sandbox.path("again.py")).find("# command   dflop export --plan p.json"),
              std::string::npos);
  }
}

TEST_F(Export, SaysWhyAPlanDoesNotRun) {
  const RunResult uniform = plan("--layout uniform --export megatron-mimo --out p.json");
  EXPECT_EQ(uniform.exit_code, 3);
  EXPECT_TRUE(uniform.out.empty());
  EXPECT_NE(uniform.err.find("dflop: error: plan: megatron-mimo cannot run"), std::string::npos)
      << uniform.err;
  EXPECT_NE(uniform.err.find("layout: expected a disaggregated plan"), std::string::npos) << uniform.err;
  ASSERT_TRUE(sandbox.has("p.json")) << "the plan that was chosen is kept";
  expect_error(sandbox.run("export --plan p.json --to megatron-mimo"), {"p.json", "found a uniform plan"}, 3);
  // 6 x 2 = 12 does not divide 64. The nearest multiples are 60 and 72.
  const RunResult uneven =
      plan("--layout disaggregated --dp 2 --encoder-dp 2 --microbatches 6 --export megatron-mimo");
  EXPECT_EQ(uneven.exit_code, 3);
  EXPECT_NE(uneven.err.find("found 64; the nearest are 60 and 72"), std::string::npos) << uneven.err;
}

/// Reads options as Megatron-LM's arguments.py does, which accepts these and no others, and prints the
/// result: microbatches by its num_microbatches_calculator.py, layers by transformer_block.py and
/// pipeline_parallel_layer_layout.py.
constexpr const char* kOptionReader = R"py(
import argparse, json, re, sys
p = argparse.ArgumentParser(allow_abbrev=False)
for name in ["tensor-model-parallel-size", "pipeline-model-parallel-size", "num-layers", "micro-batch-size",
             "global-batch-size", "num-virtual-stages-per-pipeline-rank", "decoder-first-pipeline-num-layers",
             "decoder-last-pipeline-num-layers", "recompute-num-layers", "ddp-bucket-size"]:
    p.add_argument("--" + name, type=int)
p.add_argument("--pipeline-model-parallel-layout")
p.add_argument("--clip-grad", type=float)
p.add_argument("--recompute-granularity", choices=["full", "selective"])
p.add_argument("--recompute-method", choices=["uniform", "block"])
p.add_argument("--recompute-modules", nargs="*")
for name in ["main-grads-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"]:
    p.add_argument("--" + name, default="fp32")
for name in ["use-tp-pp-dp-mapping", "sequence-parallel", "calculate-per-token-loss", "use-distributed-optimizer",
             "bf16", "grad-reduce-in-bf16", "use-precision-aware-optimizer", "overlap-grad-reduce",
             "accumulate-allreduce-grads-in-fp32"]:
    p.add_argument("--" + name, action="store_true")
world = int(sys.argv[1])
a = p.parse_args(sys.argv[2:])
tp, pp = a.tensor_model_parallel_size, a.pipeline_model_parallel_size
chunks = a.num_virtual_stages_per_pipeline_rank or 1
dp, rest = divmod(world, tp * pp)
assert rest == 0
microbatches, rest = divmod(a.global_batch_size, a.micro_batch_size * dp)
assert rest == 0
if a.pipeline_model_parallel_layout:
    layout = re.sub(r"(.)\*(\d+)", lambda m: m.group(1) * int(m.group(2)), a.pipeline_model_parallel_layout)
    assert layout[0] == "E" and layout[-1] == "L"
    layers = [stage.count("t") for stage in layout.split("|")]
    chunks = len(layers) // pp
elif a.decoder_first_pipeline_num_layers:
    first, last = a.decoder_first_pipeline_num_layers, a.decoder_last_pipeline_num_layers
    between = a.num_layers - first - last
    layers = [first] + [between // max(1, pp - 2)] * (pp - 2) + [last]
else:
    assert a.num_layers % (pp * chunks) == 0
    layers = [a.num_layers // (pp * chunks)] * (pp * chunks)
assert len(layers) == pp * chunks and sum(layers) == a.num_layers
print(json.dumps(dict(tp=tp, pp=pp, dp=dp, microbatches=microbatches, chunks=chunks, layers=layers, gbs=a.global_batch_size,
                      recomputation=a.recompute_granularity or "none", zero1=a.use_distributed_optimizer,
                      clip=a.clip_grad, replica_major=a.use_tp_pp_dp_mapping,
                      bucket=4 * a.ddp_bucket_size if a.overlap_grad_reduce else 0)))
)py";

// Each plan of a planner of uniform plans is a plan for Megatron-LM, or is rejected for a reason that the
// plan shows.
TEST_F(Export, AShellSourcesAUniformPlan) {
  testing::write_all(sandbox.path("options.py"), kOptionReader);
  const std::string data =
      "plan --data traces/datasets/vision_mix.csv --modalities image --model llava-ov-llama3-8b "
      "--cluster a100-80g:2 --gbs 64 --iterations 1 --out p.json ";
  const std::string search = data + "--planner search --budget 20000 --layout uniform ";
  int written = 0;
  for (const std::string& command :
       {data + "--planner pytorch", data + "--planner megatron", data + "--planner megatron-default", search,
        search + "--pp 2 --tp 4 --dp 2 --microbatches 8 --order 1f1b --recompute none",
        search + "--pp 4 --tp 2 --dp 2 --microbatches 8 --order 1f1b --recompute selective --no-zero1",
        search + "--pp 2 --tp 2 --dp 4 --microbatches 4 --order interleaved --chunks 2 --clip-gradients",
        search + "--pp 1 --tp 4 --dp 4 --microbatches 5 --gradient-bucket 40000000",
        search + "--pp 2 --tp 2 --dp 4 --microbatches 4 --order zb-h1"}) {
    const RunResult planned = sandbox.run(command);
    ASSERT_EQ(planned.exit_code, 0) << command << planned.err;
    const json plan = json::parse(testing::read_result(sandbox.path("p.json")));
    const RunResult exported = sandbox.run("export --plan p.json --out args.sh");
    int behind_first = 0;
    const bool one_rank = plan["llm"]["pp"] == 1;  // that rank has all layers, in chunks or not
    for (std::size_t s = 1; s < plan["encoder"]["layers"].size() && !one_rank; ++s)
      behind_first += plan["encoder"]["layers"][s].get<int>();
    const std::string order = plan["schedule"];
    const bool known = order == "1f1b" || order == "interleaved" || one_rank;
    if (behind_first > 0 || !known) {
      EXPECT_EQ(exported.exit_code, 3) << command;
      EXPECT_NE(exported.err.find(behind_first > 0 ? "encoder.layers: expected all 27 on the first stage"
                                                   : "order: expected 1f1b or interleaved, found"),
                std::string::npos)
          << exported.err;
      continue;
    }
    ASSERT_EQ(exported.exit_code, 0) << command << exported.err;
    EXPECT_NE(exported.err.find("dflop: not in megatron-lm: schedule: "), std::string::npos) << exported.err;
    const int world =
        plan["llm"]["tp"].get<int>() * plan["llm"]["pp"].get<int>() * plan["llm"]["dp"].get<int>();
    const std::string shell = "cd '" + sandbox.path(".").string() +
                              "' && bash -c 'set -eu; source ./args.sh; python3 options.py " +
                              std::to_string(world) + " \"${MEGATRON_ARGS[@]}\"' > said.json";
    ASSERT_EQ(std::system(shell.c_str()), 0) << testing::read_all(sandbox.path("args.sh"));
    const json said = json::parse(testing::read_all(sandbox.path("said.json")));
    for (const char* key : {"tp", "pp", "dp"}) EXPECT_EQ(said[key], plan["llm"][key]) << key;
    EXPECT_EQ(said["layers"], one_rank ? json({32}) : plan["llm"]["layers"]);
    EXPECT_EQ(said["microbatches"], plan["microbatches"]);
    EXPECT_EQ(said["recomputation"], plan["recomputation"]);
    EXPECT_EQ(said["zero1"], plan["zero1"]);
    EXPECT_EQ(said["clip"], plan.value("clip_gradients", false) ? json(1.0) : json()) << "which is the run's";
    EXPECT_EQ(said["bucket"], plan.value("gradient_bucket_bytes", 0));
    const int bins = plan["microbatches"].get<int>() * plan["llm"]["dp"].get<int>();
    EXPECT_EQ(said["gbs"], 64 % bins == 0 ? 64 : bins);
    ++written;
  }
  EXPECT_GE(written, 5);
}

TEST_F(Export, RejectsOtherFormsAndFiles) {
  expect_error(plan("--export megatron-mino"),
               {"--export", "found 'megatron-mino'", "did you mean 'megatron-mimo'?"});
  expect_error(plan("--export megatron-mimo --format json"), {"--format", "--export"});
  expect_error(plan("--export megatron-mimo --explain"), {"--explain", "--export"});
  const std::string file = "traces/plans/llava-ov-llama3-8b-disaggregated.json";
  expect_error(sandbox.run("export --plan " + file + " --to megatron"), {"--to", "found 'megatron'"});
  expect_error(sandbox.run("export --plan " + file + " --out " + file), {"--out", "--plan"});
  testing::write_all(sandbox.path("bad.json"), R"({"schema": "dflop.schedule"})");
  expect_error(sandbox.run("export --plan bad.json"), {"bad.json", "dflop.plan"});
}

}  // namespace export_test
}  // namespace dflop
