#include "experiments/training/tuning.hpp"

#include "core/kernel_choice/kernel_calls.hpp"
#include "core/kernel_choice/kernel_map.hpp"
#include "core/padded_model.hpp"
#include "core/support/random.hpp"

namespace dflop {

std::vector<Work> draw_microbatches(std::span<const Sample> samples, const MicrobatchDraws& draws) {
  Random random(draws.seed);
  std::vector<Work> microbatches;
  for (const int size : draws.sizes) {
    for (int m = 0; m < draws.of_each; ++m) {
      Work& work = microbatches.emplace_back();
      for (int i = 0; i < size; ++i) {
        const Sample& sample = samples[random.below(samples.size())];
        work.encoder += sample.encoder();
        work.llm += sample.llm();
      }
    }
  }
  return microbatches;
}

std::vector<TunedCall> calls_of_microbatches(const ModelSpec& model, const std::vector<TpMode>& modes,
                                             std::span<const Work> microbatches, DType dtype,
                                             int row_alignment) {
  std::vector<TunedCall> calls;
  for (const TpMode& mode : modes) {
    const ModelSpec padded = with_padded_rows(model, mode.tp, row_alignment);
    Stage stage;
    stage.encoder_layers = model.encoder.layers;
    stage.llm_layers = model.llm.layers;
    stage.connector = model.encoder.layers > 0;
    stage.embedding = stage.head = true;
    stage.tp = mode.tp;
    stage.sequence_parallel = mode.sequence_parallel;
    stage.recomputation = Recomputation::none;
    for (const Work& work : microbatches) {
      for (const Op op : {Op::forward, Op::backward}) {
        for (const StageCall& made : stage_kernel_calls(padded, stage, stage.connector, op, work)) {
          KernelCall call = made.call;
          call.dtype = static_cast<std::uint8_t>(dtype);
          calls.push_back({call, static_cast<double>(made.times)});
        }
      }
    }
  }
  return calls;
}

std::vector<TunedCall> calls_by_key(std::span<const TunedCall> calls) {
  KernelMap<double> weights;
  for (const TunedCall& tuned : calls) {
    weights.value(weights.add(KernelKey(tuned.call), 0)) += tuned.weight;
  }
  std::vector<TunedCall> by_key;
  for (std::size_t i = 0; i < weights.size(); ++i)
    by_key.push_back({weights.keys()[i].call(), weights.value(i)});
  return by_key;
}

}  // namespace dflop
