#include "experiments/options/shared_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/iteration/planner.hpp"
#include "solver/bins/ilp.hpp"
#include "solver/schedulers/command.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/preprocess/preprocess.hpp"
#include "traces/tokens/chat.hpp"

namespace dflop {

std::string joined(const std::vector<std::string_view>& names) {
  return fmt::format("{}", fmt::join(names, "|"));
}

void add_data_option(Options& options, const ValueKind& kind) {
  options.add(
      OptionGroup::data,
      {{"data", kind.common(),
        "data set: records (CSV), samples (JSON of 'dflop data --samples-out'), or, if --model is a "
        "folder, WebDataset tars (a folder, or a pattern such as shard-{000..099}.tar), a JSON list of conversations "
        "(.jsonl, or a .json array) or Megatron's .idx with the .bin of the same name"},
       {"media-root", text("DIR"),
        "folder of the media that a JSON list names by relative paths; default: the list's folder"},
       {"exif", text("upright|ignore", "upright"),
        "what to do with the EXIF orientation of pictures and the rotation of videos; upright: turn them by it; ignore: "
        "use them as stored"},
       {"bad-samples", text("stop|skip[:N]", "stop"),
        "what to do with a conversation that cannot be read, decoded or fitted to the model; stop: end with an error; "
        "skip: leave it out, or end if there are more than N; decodes all pictures and sounds once at the start"},
       {"bad-samples-out", text("FILE"),
        "write a line of JSON with id and reason for each conversation that is left out, also of --eval-data"},
       {"chat", text("FORM"),
        fmt::format("chat format of conversations: {}; default: the format of the model family",
                    fmt::join(chat_forms(), ", "))}});
}

void add_data_options(Options& options, const char* default_file) {
  add_data_option(options, default_file != nullptr ? text("FILE", default_file) : text("FILE").required());
  options.add(
      OptionGroup::data,
      {
          {"sequence-length", whole("N"),
           "pack Megatron's token ids into samples of N tokens; default: each document is a sample"},
          {"modalities", text("LIST"),
           "use only these modalities, such as text,image,video; default: all, and a modality that the model "
           "lacks is an error"},
          {"assume-image", text("WxH", "640x480"), "size of images whose record gives no size"},
          {"assume-video", text("WxH@FPS", "640x360@30"),
           "size and frame rate of videos whose record gives none"},
          {"assume-text", whole("N", PreprocessOptions{}.assume_text),
           "total text tokens of a record that gives none"},
          {"max-tokens", whole("N"),
           "cut LLM sequences to N tokens; default: the model's max length (most presets: 32,768); a note "
           "says how much is cut"},
          {"drop-long", flag(),
           "drop samples that are too long instead of cutting them, as many training stacks do; if a sample "
           "is cut, the encoder still processes all of it"},
          {"strict", flag(), "reject records that need an assumption"},
      });
}

void add_model_option(Options& options, const ValueKind& kind) {
  options.add(OptionGroup::target, {{"model", kind.common(),
                                     "preset (see 'dflop models'), model file, or folder of a Transformers "
                                     "model",
                                     "hf"}});
}

void add_cluster_option(Options& options, const ValueKind& kind) {
  options.add(
      OptionGroup::target,
      {{"cluster", kind.common(),
        "preset (see 'dflop clusters') or cluster file; a100-80g:4: four nodes; a100-80g:15+h100:1: nodes of "
        "two GPU types, which ranks fill in this order, with the links of the first type"}});
}

void add_target_options(Options& options) {
  add_model_option(options, text("NAME|FILE|DIR").required());
  add_cluster_option(options, text("NAME[:NODES]|FILE[:NODES]").required());
}

void add_plan_option(Options& options, const ValueKind& kind) {
  options.add({{"plan", kind.common(), "plan file, from 'dflop plan'"}});
}

void add_gbs_option(Options& options, const ValueKind& kind) {
  options.add(OptionGroup::batches,
              {{"gbs", kind.common(), "global batch size, in samples; optional if a plan or grid gives it"}});
}

void add_iterations_option(Options& options, std::int64_t usual) {
  options.add(OptionGroup::batches, {{"iterations", whole("K", usual).common(), "number of global batches"}});
}

void add_seed_option(Options& options) {
  options.add(OptionGroup::batches, {{"seed", whole("S", 1), "seed of all random choices"}});
}

void add_batch_options(Options& options) {
  add_gbs_option(options, whole("N").required());
  add_iterations_option(options, 8);
  add_seed_option(options);
}

void add_delay_options(Options& options) {
  options.add(
      OptionGroup::batches,
      {
          {"delay-outliers", whole("K", 0),
           "delay costly samples (more than the mean bin) by fewer than K batches, so that they run in the "
           "same batch; this changes the sample order, but each sample still comes once per pass; 0: no delay"},
          {"outlier-bins", text("MxD"),
           "microbatches (M) and dp ranks (D) that define the mean bin of --delay-outliers; required if "
           "there is no plan yet; default: as in the plan or, if a run continues under another plan, as in "
           "the first run"},
      });
}

void add_objective_option(Options& options) {
  options.add(
      OptionGroup::scheduler,
      {
          {"objective", text("published|bins|makespan"),
           "what to minimize; published: the largest bin, with its own encoder work; bins: the largest bin, "
           "with the encoder work that the bins of a microbatch share; makespan: the iteration time; "
           "default: the plan's objective, else the method's; in 'partition': bins"},
      });
}

void add_bin_order_option(Options& options) {
  options.add(
      OptionGroup::scheduler,
      {
          {"bin-order", text(joined<BinOrder>()),
           "how bins become microbatches; alike: similar bins share a microbatch, the largest in the middle; "
           "solver: as found; default: alike for methods that use costs, and for makespans the own order of "
           "disttrain and maestro. A search for the makespan ignores it and places samples itself"},
      });
}

void add_memory_options(Options& options) {
  options.add(
      OptionGroup::scheduler,
      {
          {"respect-memory", flag(),
           "keep every rank within GPU memory: a schedule that needs more is repaired or reported as "
           "infeasible. 'plan' stores the choice in the plan (default with planner search), 'schedule' and "
           "'train' follow it"},
          {"no-respect-memory", flag(), "do not keep ranks within GPU memory, whatever the plan says"},
      });
}

void add_scheduler_option(Options& options, const ValueKind& kind) {
  std::string help = "microbatch scheduler";
  for (const Method& method : methods()) {
    if (!method.note.empty()) help += fmt::format(" ({}: {})", method.name, method.note);
  }
  options.add(OptionGroup::scheduler, {{"scheduler", kind.common(), help}});
}

void add_token_cap_option(Options& options) {
  options.add(OptionGroup::scheduler,
              {{"token-cap", whole("N"), "max LLM tokens of a bin (a microbatch on one dp rank)"}});
}

void add_work_option(Options& options) {
  options.add(
      OptionGroup::scheduler,
      {{"steps", whole("N"),
        fmt::format("search work for each batch, in steps of the method ({} in 'partition': nodes); same "
                    "result on every machine",
                    joined(scheduler_names(Budget::nodes)))}});
}

void add_time_limit_option(Options& options) {
  options.add(
      OptionGroup::scheduler,
      {{"time-limit", number("SECONDS"),
        fmt::format(
            "wall-clock limit instead of a limit on work, for each batch or, in 'plan', for the whole "
            "search; the result depends on the machine; {}: samples times bins at most {}",
            joined(scheduler_names(Budget::nodes)), kTimeLimitBinaries)}});
}

void add_scheduler_options(Options& options) {
  static const std::string names = joined(scheduler_names());
  const std::string exact = joined(scheduler_names(Budget::nodes));
  const std::string nodes = fmt::format(
      "max branch-and-bound nodes of {}, for the same result on every machine; if samples times bins exceeds "
      "{}, only its local search runs",
      exact, kNodeBudgetBinaries);
  add_scheduler_option(options, text(names, "ilp"));
  add_objective_option(options);
  add_bin_order_option(options);
  add_token_cap_option(options);
  add_memory_options(options);
  add_work_option(options);
  options.add(OptionGroup::scheduler, {{"node-budget", whole("N"), nodes}});
  add_time_limit_option(options);
}

void add_scheduler_command_options(Options& options) {
  options.add(
      OptionGroup::scheduler,
      {
          {"scheduler-command", text("COMMAND"),
           "your own scheduler, instead of --scheduler: a process that reads the items of a batch and "
           "answers "
           "with their bins, one line of JSON each, such as 'python3 experiments/examples/scheduler.py' "
           "(docs/schedule-file.md)"},
          {"scheduler-timeout", number("SECONDS", kCommandTimeout.count()),
           "max time for each answer of the command, in seconds"},
      });
}

void add_search_options(Options& options) {
  options.add(
      OptionGroup::search,
      {
          {"plan-objective", text(joined<PlanObjective>(), "mean"),
           "what to minimize over iterations; cvar: mean of the slowest quarter"},
          {"layout", text(joined<Layout>()), "consider only plans of this layout"},
          {"no-shared", flag(),
           "exclude plans whose modules share GPUs (docs/shares.md; not confirmed on a GPU). An order, tp, "
           "pp, dp or microbatches already exclude these plans, unless '--layout shared' is given"},
          {"no-padded-heads", flag(),
           "exclude tp values that do not divide the heads of encoder or LLM: for such a tp dflop pads "
           "heads; Megatron-LM rejects it"},
          {"budget", whole("N"),
           "approximate number of instructions to simulate; same result on every machine; default: 90,000 "
           "per GPU, but 3 to 12 million; above 128 GPUs, 4 million"},
          {"seed-plans", texts("FILE..."),
           "plans to start from, such as good plans for slower links; they must match the other options, and "
           "the result is never worse than these plans"},
      });
}

void add_dp_option(Options& options, const ValueKind& kind) {
  options.add(OptionGroup::plan,
              {{"dp", kind, "dp ranks (replicas) of the LLM, and of an encoder on the same ranks"}});
}

void add_encoder_dp_option(Options& options, const ValueKind& kind) {
  options.add(OptionGroup::plan,
              {{"encoder-dp", kind, "replicas of an encoder on its own ranks or in a colocated plan"}});
}

void add_microbatches_option(Options& options) {
  options.add(OptionGroup::plan, {{"microbatches", whole("N"), "microbatches of each dp rank of the LLM"}});
}

void add_wish_options(Options& options) {
  options.add(OptionGroup::plan,
              {{"tp", whole("N"), "tensor parallelism of the LLM, and of an encoder on the same ranks"},
               {"pp", whole("N"), "pipeline ranks of the LLM, and of an encoder on the same ranks"}});
  add_dp_option(options, whole("N"));
  options.add(
      OptionGroup::plan,
      {{"encoder-tp", whole("N"), "tensor parallelism of an encoder on its own ranks or in a colocated plan"},
       {"encoder-pp", whole("N"), "pipeline ranks of an encoder on its own ranks"}});
  add_encoder_dp_option(options, whole("N"));
  add_microbatches_option(options);
}

void add_no_sequence_parallel_option(Options& options) {
  options.add(OptionGroup::plan,
              {{"no-sequence-parallel", flag(), "keep full activations on every tp rank"}});
}

void add_measured_tp_options(Options& options) {
  options.add(OptionGroup::times, {{"tp", wholes("N", 1), "tp values to measure, one after the other"}});
  add_no_sequence_parallel_option(options);
}

void add_training_steps_option(Options& options, const ValueKind& kind) {
  options.add({{"steps", kind.common(), "number of training steps (iterations) under each plan"}});
}

void add_uncounted_steps_option(Options& options) {
  options.add(
      {{"warm-up", whole("N", 3), "uncounted warm-up steps of each plan, before the steps of --steps"}});
}

void add_schedule_option(Options& options, const ValueKind& kind) {
  options.add({{"schedule", kind.common(),
                "schedule file, from 'dflop schedule', or your own (docs/schedule-file.md)"}});
}

void add_trace_option(Options& options, const ValueKind& kind) {
  options.add({{"trace", kind.common(),
                "recorded timeline (.json, .json.gz), from 'dflop train --record', 'dflop import --out' or "
                "'dflop simulate --out'"}});
}

void add_order_file_option(Options& options) {
  options.add(OptionGroup::what_if,
              {{"order", text("FILE"),
                "run the steps of this file instead of a pipeline schedule's (docs/own-files.md)"}});
}

void add_profile_file_option(Options& options) {
  options.add(OptionGroup::times,
              {{"profile", text("FILE"),
                "profile, from 'dflop profile' or dflop.torch.profile(): predict with its measured times "
                "instead of the cluster's GPU and links; memory is still the cluster's"}});
}

void add_kernels_file_option(Options& options, const ValueKind& kind) {
  options.add(
      OptionGroup::times,
      {{"kernels-file", kind,
        "kernel file, from 'dflop kernels tune' or 'dflop train --kernels learn'; default with --kernels: "
        "dflop.kernels. With a --profile of the default kernels: predict with the fastest kernels of this "
        "file"}});
}

void add_foreign_profile_option(Options& options) {
  options.add(OptionGroup::times,
              {{"foreign-profile", flag(), "accept a profile that was measured on another machine"}});
}

void add_extrapolate_option(Options& options) {
  options.add(OptionGroup::times,
              {{"extrapolate", flag(),
                "with a GPU's profile: allow microbatches more than twice as large as the measured ones"}});
}

void add_measuring_time_option(Options& options, double usual) {
  options.add(OptionGroup::times, {{"budget-s", number("S", usual), "time for measuring, in seconds"}});
}

void add_random_weights_option(Options& options) {
  options.add(
      {{"random-weights", flag(), "start from random weights, even if the model's folder has weights"}});
}

void add_html_option(Options& options) {
  options.add(OptionGroup::output, {{"html", text("FILE").common(), "write an HTML page with pictures"}});
}

void add_perfetto_option(Options& options) {
  options.add(OptionGroup::output,
              {{"perfetto", text("FILE").common(), "write a trace for ui.perfetto.dev (.json, .json.gz)"}});
}

void add_truth_option(Options& options, bool required) {
  ValueKind files = texts("FILE...").repeatable();
  files.is_required = required;
  options.add({
      {"truth", files, "measured iterations (CSV), like those in traces/ground_truth"},
  });
}

}  // namespace dflop
