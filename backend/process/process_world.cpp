#include "backend/process/process_world.hpp"

#include "core/error.hpp"
#include "core/support/bytes.hpp"

namespace dflop {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

std::string to_bytes(const Values& values) {
  ByteWriter writer;
  for (const auto& [name, value] : values) {
    writer.add(name);
    writer.add(value);
  }
  return writer.take();
}

Values read_values(const std::string& bytes) {
  Values values;
  for (ByteReader reader(bytes); !reader.at_end();) {
    std::string name = reader.get_text();
    values.emplace_back(std::move(name), reader.get_text());
  }
  return values;
}

/// Says which of a rank's values differs from rank 0's; nothing where all are the same.
std::string difference(const Values& first, const Values& other, std::size_t rank) {
  if (first.size() != other.size()) return "processes are of different versions";
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] == other[i]) continue;
    return "the ranks of a run need the same " + first[i].first + ": rank 0 has '" + first[i].second +
           "', rank " + std::to_string(rank) + " has '" + other[i].second + "'";
  }
  return "";
}

}  // namespace

void require_agreement(World& world, const Values& values) {
  const std::vector<std::string> all = world.gather(to_bytes(values));
  std::string problem;
  for (std::size_t r = 1; r < all.size() && problem.empty(); ++r) {
    problem = difference(values, read_values(all[r]), r);
  }
  problem = world.broadcast(problem);
  if (!problem.empty()) throw Error(ErrorKind::input, problem);
}

}  // namespace dflop
