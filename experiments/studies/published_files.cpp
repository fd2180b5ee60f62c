#include "experiments/studies/published_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "solver/planners/published/profile.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// A ReleasedModule is an encoder or LLM of the released code.
struct ReleasedModule {
  std::string_view family;
  std::string_view size;
  int layers;
  int hidden;
  int ffn;
};

constexpr ReleasedModule kEncoders[] = {
    {"siglip", "400m", 27, 1152, 4304},  {"siglip", "1b", 27, 1728, 6912},
    {"siglip", "6b", 40, 2304, 8608},    {"internvit", "300m", 24, 1024, 4096},
    {"internvit", "1b", 28, 1792, 7168}, {"internvit", "6b", 30, 3200, 12800},
};
constexpr ReleasedModule kLlms[] = {
    {"qwen2.5", "7b", 28, 3584, 18944},  {"qwen2.5", "32b", 64, 5120, 27648},
    {"qwen2.5", "72b", 80, 8192, 29568}, {"llama3", "8b", 32, 4096, 14336},
    {"llama3", "70b", 80, 8192, 28672},
};

/// Returns the released module with these widths.
const ReleasedModule& find_released(std::span<const ReleasedModule> modules, const TransformerSpec& spec,
                                    const ModelSpec& model) {
  for (const ReleasedModule& module : modules) {
    if (tile_side(model) && module.layers == spec.layers && module.hidden == spec.hidden &&
        module.ffn == spec.ffn)
      return module;
  }
  std::string known;
  for (const ReleasedModule& module : modules)
    known += fmt::format("{}{} {} ({} layers of width {})", known.empty() ? "" : ", ", module.family,
                         module.size, module.layers, module.hidden);
  throw Error(
      ErrorKind::input,
      fmt::format("the released optimizer does not know '{}' of model {}, with {} layers of width {}; it "
                  "plans LLaVA-OneVision and InternVL with {}",
                  spec.name, model.name, spec.layers, spec.hidden, known));
}

std::string memory_csv(const std::vector<MemoryRow>& rows, bool encoder) {
  std::string text = fmt::format("{},model_mem,fwd_peak,model_state_peak,num_layers,tp_size\n",
                                 encoder ? "batch_size" : "batch_size,seq_len");
  for (const MemoryRow& row : rows) {
    text += fmt::format("{}{},{},{},{},{},{}\n", encoder ? "" : "1,", row.units, row.state_after,
                        row.forward_peak, row.state_peak, row.layers, row.tp);
  }
  return text;
}

std::string times_csv(const std::vector<TimeRow>& rows, std::string_view units) {
  std::string text = fmt::format("{},model_time,num_layers,tp_size\n", units);
  for (const TimeRow& row : rows)
    text += fmt::format("{},{},{},{}\n", row.units, row.milliseconds, row.layers, row.tp);
  return text;
}

void add_little_endian(std::string& bytes, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
}

/// Adds a name and a list of numbers to a Python pickle of protocol 2 (Python's Lib/pickletools.py).
void add_list(std::string& pickle, std::string_view name, const std::vector<double>& numbers) {
  pickle += 'X';  // a string
  add_little_endian(pickle, static_cast<std::uint32_t>(name.size()));
  pickle += name;
  pickle += "](";  // an empty list, and the mark before its items
  for (const double number : numbers) {
    if (number == std::trunc(number)) {
      pickle += 'J';  // an integer
      add_little_endian(pickle, static_cast<std::uint32_t>(number));
    } else {
      pickle += 'G';  // a float, big-endian
      const auto bits = std::bit_cast<std::uint64_t>(number);
      for (int i = 7; i >= 0; --i) pickle += static_cast<char>(bits >> (8 * i));
    }
  }
  pickle += 'e';  // appends the items
}

/// Returns a pickled dict of the samples' tiles and tokens.
std::string data_pickle(const PublishedTables& tables) {
  std::string pickle = "\x80\x02}(";
  add_list(pickle, "image_batch", tables.tiles);
  add_list(pickle, "llm_input_seq", tables.tokens);
  return pickle + "u.";
}

void require_all_tps(const std::vector<TimeRow>& rows, const ModelSpec& model) {
  for (const int tp : {1, 2, 4, 8}) {
    if (std::ranges::none_of(rows, [&](const TimeRow& row) { return row.tp == tp; }))
      throw Error(ErrorKind::input,
                  fmt::format("the released optimizer needs times of the encoder at tp 1, 2, 4 and 8; {} has "
                              "none at tp {}, because a node has fewer GPUs or tp does not divide its heads",
                              model.encoder.name, tp));
  }
}

}  // namespace

void write_published_tables(const std::string& folder, const PlanningInput& input) {
  const ModelSpec& model = input.target.model;
  const ReleasedModule& encoder = find_released(kEncoders, model.encoder, model);
  const ReleasedModule& llm = find_released(kLlms, model.llm, model);
  const PlanRequest request{input.target.problem(), input.target.executor, input.gbs,
                            input.samples,          input.batches,         input.seed,
                            input.options,          /*progress=*/{}};
  const PublishedTables tables = published_tables(request);
  require_all_tps(tables.encoder_times, model);
  const std::string_view mllm = model.preprocess == "llava-ov" ? "llavaov" : "internvl";
  const auto path = [&](const std::string& name) { return folder + "/" + name; };
  const auto csv = [&](std::string_view kind, const ReleasedModule& module, std::string_view suffix = "") {
    return path(fmt::format("{}_{}_{}_{}{}.csv", kind, mllm, module.family, module.size, suffix));
  };
  StagedOutputs files;
  files.add(csv("mem", encoder), memory_csv(tables.encoder_memory, true));
  files.add(csv("mem", llm), memory_csv(tables.llm_memory, false));
  files.add(csv("thr", encoder), times_csv(tables.encoder_times, "batch_size"));
  files.add(csv("thr", llm), times_csv(tables.llm_times, "seq_len"));
  files.add(csv("thr", llm, "_skip_attn"), times_csv(tables.llm_times_without_attention, "seq_len"));
  files.add(path(fmt::format("{}_{}_{}.pkl", mllm, encoder.family, llm.family)), data_pickle(tables));
  files.add(path("dflop_config.yaml"),
            fmt::format("models:\n  mllm: {}\n  vision:\n    name: {}\n    size: {}\n  llm:\n    name: {}\n"
                        "    size: {}\npaths:\n  result_dir: .\nhardware:\n  n_gpus: {}\n  gpu_memory_gb: "
                        "{}\ntraining:\n  global_batch_size: {}\n  training_steps: 1\n",
                        mllm, encoder.family, encoder.size, llm.family, llm.size, input.target.cluster.gpus(),
                        static_cast<double>(input.target.cluster.gpu.memory.count) / kGib, input.gbs));
  files.commit();
}

}  // namespace dflop
