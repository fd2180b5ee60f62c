#include "experiments/options/live/held_out_options.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "core/refuse.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/training/checkpoint_folder.hpp"
#include "experiments/training/loop.hpp"
#include "traces/shards/shard_list.hpp"

namespace dflop {

void add_held_out_options(Options& options) {
  options.add(
      OptionGroup::held_out,
      {
          {"eval-data", text("FILE|SHARDS"),
           "held-out samples, given like --data, to evaluate at the end of the run; their loss is eval_loss "
           "in output and logs; the model does not learn from them"},
          {"eval-every", whole("K", 0), "also evaluate after every K steps; 0: only at the end"},
          {"eval-steps", whole("N"),
           fmt::format("evaluate only the first N batches of gbs samples; default: all, at most {}",
                       kMaxHeldOutBatches)},
      });
}

std::optional<HeldOutData> read_held_out(const Values& values, const TrainJob& job) {
  if (values.count("eval-data") == 0) {
    for (const char* option : {"eval-every", "eval-steps"}) {
      if (values.count(option) > 0 && !values[option].defaulted()) {
        refuse_option(option, "needs '--eval-data'");
      }
    }
    return std::nullopt;
  }
  HeldOutData data;
  data.every = read_integer(values, "eval-every", 0, kMaxSteps);
  if (values.count("eval-steps") > 0) data.batches = read_integer(values, "eval-steps", 1, kMaxSteps);
  const ModelSpec& model = job.target->model;
  const auto name = values["eval-data"].as<std::string>();
  if (kind_of_shards(name)) {
    data.shards = open_shards(values, model, "eval-data", nullptr, true, job.shards.get());
    data.samples = {data.shards, &data.shards->samples()};
  } else {
    data.samples =
        std::make_shared<const std::vector<Sample>>(read_samples(values, model, job.seed, "eval-data"));
    if (job.shards)
      say("dflop: note: contents of --eval-data are generated from the seed, because {} has only shapes\n",
          name);
  }
  if (std::ssize(*data.samples) < job.plan.bins()) {
    refuse_input(name, "expected at least {} samples, one for each microbatch and dp rank, found {}",
                 job.plan.bins(), data.samples->size());
  }
  data.fingerprint = fingerprint(*data.samples);
  return data;
}

}  // namespace dflop
