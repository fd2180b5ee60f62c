// Encoder inputs are rounded when they are loaded. A step gives the same results as with values rounded at
// the upload.
#include <gtest/gtest.h>

#include "tests/backend/content/golden_run.hpp"

namespace dflop {
namespace content_precision_test {

using testing::GoldenModel;
using testing::GoldenRun;

GoldenModel in_precision_of(const GoldenModel& model, DType dtype) {
  GoldenModel converted = model;
  converted.contents = std::make_shared<StoredContents>();
  for (const Sample& sample : model.samples)
    converted.contents->keep(sample.id, in_precision(content_of(model, sample), dtype));
  return converted;
}

/// Runs a step, which also computes the gradients, and returns its loss.
double loss_of(const GoldenRun& run) {
  StepOptions options;
  options.update = false;
  return run.executor->step(run.iteration, options).loss;
}

/// Patches, patches after class rows, and sounds; complete on a rank or, with sequence parallelism, in parts.
TEST(ContentPrecision, OfARunChangesNoBit) {
  for (const char* name : {"llava-onevision-qwen2", "internvl-300m-style", "qwen2.5-vl", "qwen2-audio"}) {
    const GoldenModel model = testing::read_golden_model(name);
    for (const DType dtype : {DType::bf16, DType::f64}) {
      const GoldenModel converted = in_precision_of(model, dtype);
      for (const testing::GoldenWay& way : testing::golden_ways(model.spec)) {
        SCOPED_TRACE(std::string(name) + ", " + way.name + ", " + std::string(to_string(dtype)));
        GoldenRun run(model, way.plan, dtype);
        GoldenRun found(converted, way.plan, dtype);
        EXPECT_EQ(loss_of(found), loss_of(run));
        const WholeTensors gradients = found.executor->read(ParameterStore::Kind::gradient);
        for (const auto& [tensor, expected] : run.executor->read(ParameterStore::Kind::gradient))
          EXPECT_EQ(gradients.at(tensor).values, expected.values) << tensor;
      }
    }
  }
}

}  // namespace content_precision_test
}  // namespace dflop
