#include "traces/dataset/dataset.hpp"

#include "core/refuse.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/dataset/token_data.hpp"
#include "traces/shards/shard_list.hpp"

namespace dflop {

std::shared_ptr<const Dataset> open_dataset(const ModelSpec& model, const std::string& folder,
                                            const std::string& name, const DatasetOptions& options) {
  if (!model.architecture) {
    refuse_input(
        name,
        "tars, JSON lists and Megatron's token ids, or a directory of them, need the folder of a Transformers model "
        "as the model, found '{}'",
        model.name);
  }
  if (kind_of_shards(name) == ShardKind::megatron)
    return std::make_shared<const TokenData>(model, name, options.sequence_length);
  return std::make_shared<const ShardData>(model, folder, name, options);
}

}  // namespace dflop
