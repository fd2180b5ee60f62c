// dflop models, dflop clusters, dflop devices and dflop manual list the available choices.
#include <fmt/format.h>

#include "backend/gpus.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/help.hpp"
#include "experiments/commands/models_check.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"

namespace dflop {
namespace {

std::int64_t encoder_parameters(const ModelSpec& model) {
  return model.encoder.layers * model.encoder.layer_parameters(1) + model.connector.parameters(1) +
         model.second_encoder_parameters(1) + model.second_connector_parameters(1);
}

std::int64_t llm_parameters(const ModelSpec& model) {
  return model.llm.layers * model.llm.layer_parameters(1) + 2 * model.llm.embedding_parameters(1);
}

int run_models(const Values& values) {
  if (values.count("check") > 0) return run_models_check(values);
  for (const char* option :
       {"data", "media-root", "exif", "bad-samples", "bad-samples-out", "chat", "decode", "cluster"}) {
    if (values.count(option) > 0 && !values[option].defaulted())
      refuse_option(option, "applies only with --check");
  }
  Table table;
  table.columns = {{"name", "name"},
                   {"encoder", "encoder"},
                   {"encoder_parameters", "encoder 1e6", 1, 1e-6},
                   {"llm", "LLM"},
                   {"llm_parameters", "LLM 1e6", 1, 1e-6},
                   {"preprocess", "preprocess"},
                   {"max_tokens", "max tokens"}};
  for (const std::string& name : preset_names("models")) {
    const ModelSpec model = find_model(name);
    std::string encoders = model.encoder.name;
    if (model.second) encoders += ", " + model.second->encoder.name;
    table.rows.push_back({name, encoders, encoder_parameters(model), model.llm.name, llm_parameters(model),
                          model.preprocess, model.max_tokens});
  }
  print_table(table, read_format(values));
  return 0;
}

int run_clusters(const Values& values) {
  Table table;
  table.columns = {{"name", "name"},
                   {"gpu", "GPU"},
                   {"gpus_per_node", "GPUs/node"},
                   {"peak_flop_per_s", "peak TFLOP/s", 0, 1e-12},
                   {"memory_bytes", "memory GiB", 1, 0x1p-30},
                   {"memory_bandwidth_bytes_per_s", "memory TB/s", 2, 1e-12},
                   {"intra_node_bytes_per_s", "NVLink GB/s", 0, 1e-9},
                   {"inter_node_bytes_per_s", "network GB/s per GPU", 1, 1e-9},
                   {"software", "software"}};
  for (const std::string& name : preset_names("clusters")) {
    const ClusterSpec cluster = find_cluster(name);
    const GpuSpec& gpu = cluster.gpu;
    table.rows.push_back({name, gpu.name, cluster.gpus_per_node, gpu.peak_flop_per_s, gpu.memory,
                          gpu.memory_bandwidth_bytes_per_s, cluster.intra_node.bandwidth_bytes_per_s,
                          cluster.inter_node.bandwidth_bytes_per_s, cluster.software.name});
  }
  print_table(table, read_format(values));
  return 0;
}

int run_devices(const Values& values) {
  Table table;
  table.columns = {{"index", "device"},
                   {"name", "name"},
                   {"multiprocessors", "SMs"},
                   {"compute_capability", "capability"},
                   {"memory_bytes", "memory GiB", 1, 0x1p-30},
                   {"free_memory_bytes", "free GiB", 1, 0x1p-30}};
  for (const GpuInfo& device : cuda_devices()) {
    table.rows.push_back({device.index, device.name, device.multiprocessors, device.compute_capability,
                          device.memory, device.free_memory});
  }
  print_table(table, read_format(values));
  return 0;
}

int run_manual(const Values&) {
  fmt::print("{}", manual_text());
  return 0;
}

}  // namespace

Command models_command() {
  Command command{
      .name = "models",
      .task = Task::data,
      .summary = "list the model presets, or check a model folder",
      .description =
          R"(Your own model is a Hugging Face folder, of which plans need only config.json, or a file in the
same form as the files in experiments/presets/models: give its path. docs/own-files.md explains its keys.
--check reads a folder as train does, but computes nothing: it prints what is read, not read and rejected of the
config, weights, processor and tokenizer and, with --data, of training data. It then lists bad samples, predicts
compute times on a GPU of --cluster and, on standard error, says how fast one thread reads. Exit code 2 if something is rejected.)",
      .example = "dflop models",
      .run = run_models,
  };
  command.options.add(
      OptionGroup::main,
      {{"check", text("DIR").common(), "model folder to check"},
       {"decode", whole("N"),
        "decode the pictures and sounds of the first N conversations of --data; default: 1,000, or all with "
        "--bad-samples skip"}});
  add_cluster_option(command.options, text("NAME|FILE", "h100"));
  add_data_option(command.options, text("FILE|DIR"));
  return command;
}

Command clusters_command() {
  return {
      .name = "clusters",
      .task = Task::data,
      .summary = "list the cluster presets",
      .description =
          R"('a100-80g:4' is four nodes. Bandwidths are achieved bandwidths in one direction. Your own cluster
is a file in the same form as the files in experiments/presets/clusters: give its path, followed by ':NODES'.
docs/own-files.md explains its keys.)",
      .example = "dflop clusters --format json",
      .run = run_clusters,
  };
}

Command devices_command() {
  return {
      .name = "devices",
      .task = Task::data,
      .summary = "list the GPUs of this machine",
      .description =
          "Exit code 4 if there is none; a message says whether the build, the driver or the device is "
          "missing.",
      .example = "dflop devices",
      .run = run_devices,
  };
}

Command manual_command() {
  return {
      .name = "manual",
      .task = Task::tools,
      .summary = "print the manual, docs/cli.md",
      .description = "Prints all commands with their options and examples, as Markdown.",
      .example = "dflop manual",
      .run = run_manual,
      .has_format = false,
  };
}

}  // namespace dflop
