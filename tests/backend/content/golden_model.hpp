// The golden models of tests/golden/models: their weights, samples, and the results of transformers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/content/stored_names.hpp"
#include "backend/model/parameter_store.hpp"
#include "core/model.hpp"
#include "traces/dataset/sample_content.hpp"

namespace dflop::testing {

/// A GoldenTensor is a tensor of a safetensors file, with its numbers as double.
struct GoldenTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
using GoldenTensors = std::map<std::string, GoldenTensor>;

/// A GoldenModel is one folder of tests/golden/models.
struct GoldenModel {
  std::string name;
  std::string folder;
  ModelSpec spec;
  GoldenTensors weights;
  GoldenTensors gradients;
  std::shared_ptr<StoredContents> contents;
  std::vector<Sample> samples;
  double loss = 0;
  std::vector<double> losses;          ///< of each AdamW step, and after the last one
  std::vector<double> rates;           ///< learning rates of the steps
  std::vector<double> gradient_norms;  ///< before clipping
  std::vector<std::string> zero;       ///< gradients that are zero except for rounding
  double gradient_norm = 0;
};

/// Returns the names of all golden models.
std::vector<std::string> golden_models();
/// Reads a model. `change` may modify its sizes and forms before samples are built.
GoldenModel read_golden_model(const std::string& name, const std::function<void(ModelSpec&)>& change = {});

/// Returns the content of a sample.
SampleContent content_of(const GoldenModel& model, const Sample& sample);

/// Converts tensors with transformers' names and layouts to the tensors in `like`.
WholeTensors from_stored(const GoldenModel& model, const GoldenTensors& stored, const WholeTensors& like);

}  // namespace dflop::testing
