#include "solver/bins/exchange_kernel.hpp"

#include <algorithm>
#include <cstring>

namespace dflop {
namespace {

using Floats = decltype(Lanes::value);

/// Returns the load after one exchange, computed like the vectors do; kFar if a cap forbids it.
float load_after(const ExchangeQuery& q, int i, int j) {
  for (int c = 0; c < q.caps; ++c) {
    const float change = q.y.weight[c][j] - q.x.weight[c][i];
    if (change < q.least[c] || change > q.most[c]) return kFar;
  }
  const float encoder = std::max((q.encoder_x - q.x.encoder[i]) + q.y.encoder[j],
                                 (q.encoder_y + q.x.encoder[i]) - q.y.encoder[j]);
  const float llm = std::max((q.llm_x - q.x.llm[i]) + q.y.llm[j], (q.llm_y + q.x.llm[i]) - q.y.llm[j]);
  return std::max(encoder, llm);
}

}  // namespace

// This namespace has linkage because the clones are found by name.
DFLOP_VECTOR_CLONES float least_load_after(const ExchangeQuery& q) {
  Floats least = {};
  least += kFar;
  const Floats far = least;
  const int blocks = (q.y.count + kLanes - 1) / kLanes;
  for (int i = 0; i < q.x.count; ++i) {
    const float ex = q.encoder_x - q.x.encoder[i];
    const float lx = q.llm_x - q.x.llm[i];
    const float ey = q.encoder_y + q.x.encoder[i];
    const float ly = q.llm_y + q.x.llm[i];
    for (int block = 0; block < blocks; ++block) {
      Floats e;
      Floats l;
      std::memcpy(&e, q.y.encoder + static_cast<std::ptrdiff_t>(block) * kLanes, sizeof(e));
      std::memcpy(&l, q.y.llm + static_cast<std::ptrdiff_t>(block) * kLanes, sizeof(l));
      const Floats a = ex + e;
      const Floats b = lx + l;
      const Floats c = ey - e;
      const Floats d = ly - l;
      const Floats encoder = a > c ? a : c;
      const Floats llm = b > d ? b : d;
      Floats load = encoder > llm ? encoder : llm;
      for (int k = 0; k < q.caps; ++k) {
        Floats w;
        std::memcpy(&w, q.y.weight[k] + static_cast<std::ptrdiff_t>(block) * kLanes, sizeof(w));
        const Floats change = w - q.x.weight[k][i];
        load = change < q.least[k] ? far : load;
        load = change > q.most[k] ? far : load;
      }
      least = load < least ? load : least;
    }
  }
  float smallest = kFar;
  for (int k = 0; k < kLanes; ++k) smallest = std::min(smallest, least[k]);
  return smallest;
}

bool best_exchange(const ExchangeQuery& query, Exchange& best) {
  const float least = least_load_after(query);
  if (!(least < best.load)) return false;
  for (int i = 0; i < query.x.count; ++i) {
    for (int j = 0; j < query.y.count; ++j) {
      if (load_after(query, i, j) != least) continue;
      best = {least, i, j};
      return true;
    }
  }
  return false;  // not reached: one of them is the smallest
}

}  // namespace dflop
