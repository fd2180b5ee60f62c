// The settings of 'dflop train': how it runs a job.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "core/plan.hpp"
#include "costmodel/correction/adaptive.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/anomaly.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/training/held_out.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/optimizer.hpp"
#include "kernels/attention_options.hpp"
#include "kernels/kernels.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Checkpoints say where and how often the state of a run is saved.
struct Checkpoints {
  std::optional<std::string> folder;
  std::int64_t every = 0;  ///< steps; 0: only at the end
  bool resume = false;
};

/// A CorrectionChoice says whether steps correct the profile, and by which rule.
struct CorrectionChoice {
  bool correct = false;
  std::optional<SwitchRule> rule;      ///< none: it always learns
  std::optional<Anomaly> slow_shapes;  ///< for experiments: these samples are slow
};

/// TrainSettings holds all options of a training run other than its job.
struct TrainSettings {
  std::set<std::string> given;  ///< options that the user gave
  Plan plan;                    ///< the user's plan; the job's may differ in details
  DType dtype = DType::f32;
  SchedulerChoice scheduler;
  OptimizerChoice optimizer;
  bool random_weights = false;  ///< even if the model's folder has weights
  int data_threads = 1;         ///< of each process
  Checkpoints checkpoints;
  KernelRequest kernels;
  CorrectionChoice correction;
  std::optional<HeldOutData> held_out;
  std::optional<std::string> profile;
  bool foreign_profile = false;       ///< a profile of another machine is accepted
  bool extrapolate = false;           ///< see require_reach()
  std::optional<double> peak_tflops;  ///< of one device
  // Outputs.
  Format format = Format::table;
  std::optional<std::string> record;
  std::optional<std::string> exported;  ///< the folder to write the model to
  std::optional<std::string> log;
  std::optional<std::string> tensorboard;  ///< a folder
  Provenance made_by;                      ///< for the files of the run
};

/// Rejects the default learning rate, which is for random weights, in a run that begins with the weights of a
/// model's folder. @throws Error (usage)
void require_rate(const TrainSettings& settings, const std::string& model);

}  // namespace dflop
