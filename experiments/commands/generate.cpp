// dflop generate generates a model's answers to samples of tars or lists.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "backend/content/folder_weights.hpp"
#include "backend/content/generator.hpp"
#include "core/refuse.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMaxAnswers = 1'000'000;

Table answer_table(const std::vector<Sample>& samples, const std::vector<Answer>& answers,
                   const Tokenizer& tokenizer) {
  Table table;
  table.columns = {{"sample", "sample"}, {"expected", "expected"}, {"answer", "answer"}, {"equal", "equal"}};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    table.rows.push_back({samples[i].id, tokenizer.decode(answer.expected), tokenizer.decode(answer.found),
                          answer.expected == answer.found});
  }
  return table;
}

int run_generate(const Values& values) {
  const Format format = read_format(values);
  LiveDevice device = read_local_device(values);
  device.device_cores = read_device_cores(values, device);
  const DType dtype = read_dtype(values);
  const std::int64_t most = read_integer(values, "tokens", 1, kMaxAnswers);
  const std::int64_t count = read_integer(values, "samples", 1, kMaxAnswers);
  const std::uint64_t seed = read_seed(values);
  const ModelSpec model = find_model(values["model"].as<std::string>());
  if (!is_model_folder(model.name)) {
    refuse_option("model", "expected the folder of a Transformers model, which has a tokenizer, found '" +
                               model.name + "'");
  }
  const auto data = values["data"].as<std::string>();
  if (const auto kind = kind_of_shards(data); !kind || *kind == ShardKind::megatron)
    refuse_option("data", "expected tars or a folder of them, or a JSON list, found '" + data + "'");
  const std::shared_ptr<const Dataset> shards = open_shards(values, model);
  const Tokenizer tokenizer(model.name + "/tokenizer.json");
  const std::unique_ptr<World> world = make_live_world(device, 1);
  std::optional<FolderWeights> weights;
  if (!values["random-weights"].as<bool>()) weights.emplace(model, model.name);
  const LocalRank rank(*world, 0, dtype);
  const RankContext context = context_of(rank);
  const Generator generator(model, context, seed, weights ? &*weights : nullptr);
  weights.reset();

  const auto begin = std::chrono::steady_clock::now();
  Progress progress("Answering");
  std::vector<Answer> answers;
  const std::int64_t all = std::min(count, std::ssize(shards->samples()));
  for (std::int64_t i = 0; i < all; ++i) {
    progress.update(i, all);
    const std::string& id = shards->samples()[static_cast<std::size_t>(i)].id;
    try {
      answers.push_back(generator.answer(shards->read(id, true), most, tokenizer.vocabulary_size()));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input || !error.context().empty()) throw;
      refuse_input(data + ": sample '" + id + "'", "{}", error.message());
    }
  }
  print_table(answer_table(shards->samples(), answers, tokenizer), format);
  const auto equal = std::count_if(answers.begin(), answers.end(),
                                   [](const Answer& answer) { return answer.expected == answer.found; });
  std::int64_t tokens = 0;
  for (const Answer& answer : answers) tokens += std::ssize(answer.found);
  const Seconds time = std::chrono::steady_clock::now() - begin;
  say("dflop: {} of {} answers are as expected; {} tokens, {:.1f} a second\n", equal, answers.size(), tokens,
      static_cast<double>(tokens) / time.count());
  return 0;
}

}  // namespace

Command generate_command() {
  Command command{
      .name = "generate",
      .task = Task::run,
      .summary = "let a model answer samples, to see what it has learned",
      .description =
          R"(Prints the first answer of each sample next to the model's answer, generated from everything
before it. Each token is the most likely one. An answer ends where the sample's does, or after --tokens. Each
token runs the whole sequence again: use this to look at some answers, not to serve a model. The model is a folder of
a Transformers model, such as written by 'dflop train --export', and the data are tars or a JSON list.)",
      .example =
          "dflop generate --hf traces/emoji/model --data traces/emoji/held-out.tar --random-weights --tokens 4",
      .run = run_generate,
  };
  add_model_option(command.options, text("DIR").required());
  add_data_option(command.options, text("TARS").required());
  command.options.add({
      {"samples", whole("N", 8), "answer only the first N samples"},
      {"tokens", whole("N", 64), "max tokens of an answer"},
  });
  add_random_weights_option(command.options);
  add_seed_option(command.options);
  add_live_options(command.options);
  add_device_cores_option(command.options);
  return command;
}

}  // namespace dflop
