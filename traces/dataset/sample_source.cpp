#include "traces/dataset/sample_source.hpp"

#include "traces/dataset/list_source.hpp"
#include "traces/dataset/tar_source.hpp"
#include "traces/shards/shard_list.hpp"

namespace dflop {

std::unique_ptr<const SampleSource> open_source(const std::string& name, const std::string& media_root) {
  const std::vector<std::string> files = expand_shards(name);
  if (kind_of_shards(name) == ShardKind::list) return std::make_unique<ListSource>(files, media_root);
  return std::make_unique<TarSource>(files);
}

}  // namespace dflop
