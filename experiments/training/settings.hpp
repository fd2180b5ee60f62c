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
  std::int64_t every = 0;  ///< interval in steps; 0: only at the end
  bool resume = false;
};

/// A CorrectionChoice says whether steps correct the profile, and by which rule.
struct CorrectionChoice {
  bool correct = false;
  std::optional<SwitchRule> rule;      ///< none: learning is always on
  std::optional<Anomaly> slow_shapes;  ///< for experiments: makes these samples slow
};

/// TrainSettings holds all options of a training run other than its job.
struct TrainSettings {
  std::set<std::string> given;  ///< options that the user gave
  Plan plan;                    ///< the user's plan; the job's plan may differ in details
  DType dtype = DType::f32;
  SchedulerChoice scheduler;
  OptimizerChoice optimizer;
  bool random_weights = false;  ///< ignore the weights in the model's folder
  int data_threads = 1;         ///< threads per process
  Checkpoints checkpoints;
  KernelRequest kernels;
  CorrectionChoice correction;
  std::optional<HeldOutData> held_out;
  std::optional<std::string> profile;
  bool foreign_profile = false;       ///< accept a profile from another machine
  bool extrapolate = false;           ///< see require_reach()
  std::optional<double> peak_tflops;  ///< peak of one device
  // Outputs.
  Format format = Format::table;
  std::optional<std::string> record;
  std::optional<std::string> exported;  ///< path of the folder for the trained model
  std::optional<std::string> log;
  std::optional<std::string> tensorboard;  ///< a folder
  Provenance made_by;                      ///< provenance for the files of the run
};

/// Rejects the default learning rate if the run begins with the weights of a model's folder, because the
/// default is for random weights. @throws Error (usage)
void require_rate(const TrainSettings& settings, const std::string& model);

}  // namespace dflop
