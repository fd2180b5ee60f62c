// dflop train trains a model under a plan on a live device.
#include <fmt/format.h>

#include <memory>

#include "experiments/cli/command.hpp"
#include "experiments/cli/recipe.hpp"
#include "experiments/commands/train_job.hpp"
#include "experiments/commands/train_settings.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/live/held_out_options.hpp"
#include "experiments/options/live/kernel_options.hpp"
#include "experiments/options/live/optimizer_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/training/train_run.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

int run_train(const Values& values) {
  if (values["print-recipe"].as<bool>()) {
    fmt::print("{}", to_recipe(values));
    return 0;
  }
  LiveDevice device = read_live_device(values);
  device.cores = read_cores(values, device);
  device.device_cores = read_device_cores(values, device);
  TrainSettings settings = read_train_settings(values, device);
  TrainJob job = read_train_job(values);
  job.attention_sums = device.attention.sums;
  read_settings_of_job(values, job, settings);
  job.plan.clip_gradients =
      true;  // ends the run at a norm that is not finite, before weights change; see --clip-norm
  const std::unique_ptr<World> world = make_live_world(device, job.plan);
  TrainRun run(*world, settings, job);
  try {
    return run.run();
  } catch (const std::exception& error) {
    world->abort(error.what());
    throw;
  }
}

}  // namespace

Command train_command() {
  Command command{
      .name = "train",
      .task = Task::run,
      .summary = "train a model under a plan on a live device",
      .description =
          R"(Runs the plan's programs on the shapes of the data set, with pixels and tokens generated from the
seed: answers follow from the image's class and the previous token, so the loss falls. Shards have contents of
their own, and a Transformers folder its weights. Without a plan, the model is tiny-vlm unless --model names
another, one rank has the encoder and one the LLM, and gbs is 16. If options give parallelism, microbatches, a
layout or an order, planner search chooses the rest on one node of eight GPUs, from batches without delay.

SIGINT, SIGTERM and SIGHUP end the run after the current step, and it always ends before a step whose loss or
gradient norm is not finite. With --profile, it prints the predicted time next to each step's time, and the share of
passes larger than any measured point. The scheduler works on a step while the previous step runs; with
--time-limit, a step takes the best schedule found by its start. At the end, standard error shows the mean, 95th
percentile and spread of the step times (without the first step of a run), tokens per second, the time from step
to step, and the share of the machine's time that other processes took.)",
      .example = "dflop train --model tiny-vlm --device host --steps 10 --log run.jsonl",
      .run = run_train,
  };
  add_recipe_options(command.options);
  add_plan_option(command.options, text("FILE"));
  add_model_option(command.options, text("NAME|FILE|DIR"));
  add_live_options(command.options);
  add_cores_option(command.options);
  add_training_steps_option(command.options, whole("N").required());
  add_gbs_option(command.options, whole("N"));
  add_seed_option(command.options);
  add_random_weights_option(command.options);
  command.options.add(OptionGroup::data,
                      {{"data-threads", whole("N", 1),
                        "threads per process that read and decode the next step's samples from shards"}});
  command.options.add(
      OptionGroup::output,
      {
          {"log", text("FILE").common(), "append a line of JSON to this file after each step"},
          {"tensorboard", text("DIR"),
           "write the same figures as TensorBoard curves, to a new file in this folder"},
          {"peak-tflops", number("T"),
           "peak TFLOP/s of one device in --dtype, for MFU: FLOP of the model without padding and "
           "recomputation, divided by time, devices and peak; default: MFU is null"},
          {"record", text("FILE"), "write the timelines of the last 32 steps, for 'dflop replay'"},
          {"checkpoint", text("DIR").common(),
           "write the state of the run to this folder at the end; the two newest checkpoints are kept"},
          {"every", whole("K", 0), "also write a checkpoint after every K steps; 0: only at the end"},
          {"resume", flag().common(),
           "continue from the newest readable checkpoint, under any plan of the same model, seed, gbs "
           "and data"},
          {"export", text("DIR"),
           "with a Transformers folder as --model: write a copy with the final weights, which "
           "Transformers can load; the folder appears when it is complete"},
      });
  add_profile_file_option(command.options);
  add_foreign_profile_option(command.options);
  command.options.add(
      OptionGroup::times,
      {
          {"correction", text("RULE", "off"),
           "with --profile: learn during training which shapes take longer than predicted, and schedule "
           "accordingly: off, always, published (only while it pays) or keep (as published, but the learned "
           "correction stays in use while learning is off); docs/correction.md"},
          {"slow-shapes", text("FRACTION:LATENCY"),
           "with --profile, for experiments: slow down all samples of some shapes, together this fraction of "
           "the samples, each by LATENCY times the duration of the largest stage"},
      });
  add_held_out_options(command.options);
  add_optimizer_options(command.options);
  add_kernel_options(command.options);
  add_extrapolate_option(command.options);
  add_delay_options(command.options);
  add_wanted_plan_options(command.options);
  add_data_options(command.options, "traces/datasets/vision_mix.csv");
  add_scheduler_option(command.options, text(joined(scheduler_names()), "lpt"));
  add_objective_option(command.options);
  add_bin_order_option(command.options);
  add_memory_options(command.options);
  add_token_cap_option(command.options);
  add_time_limit_option(command.options);
  return command;
}

}  // namespace dflop
