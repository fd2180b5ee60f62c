#include <utility>

#include "sim/network/flows.hpp"

namespace dflop {

void Flows::Heap::push(std::int32_t flow) {
  places_.push_back(flow);
  put(places_.size() - 1, flow);
  up(places_.size() - 1);
}

void Flows::Heap::pop() {
  const std::int32_t last = places_.back();
  places_.pop_back();
  if (places_.empty()) return;
  put(0, last);
  down(0);
}

void Flows::Heap::update(std::int32_t flow) {
  up(flows_[flow].heap_place);
  down(flows_[flow].heap_place);
}

bool Flows::Heap::earlier(std::int32_t a, std::int32_t b) const {
  const Flow& first = flows_[a];
  const Flow& second = flows_[b];
  return first.event != second.event ? first.event < second.event : first.number < second.number;
}

void Flows::Heap::put(std::size_t place, std::int32_t flow) {
  places_[place] = flow;
  flows_[flow].heap_place = place;
}

void Flows::Heap::up(std::size_t place) {
  const std::int32_t flow = places_[place];
  while (place > 0 && earlier(flow, places_[(place - 1) / 2])) {
    put(place, places_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, flow);
}

void Flows::Heap::down(std::size_t place) {
  const std::int32_t flow = places_[place];
  while (2 * place + 1 < places_.size()) {
    std::size_t child = 2 * place + 1;
    if (child + 1 < places_.size() && earlier(places_[child + 1], places_[child])) ++child;
    if (!earlier(places_[child], flow)) break;
    put(place, places_[child]);
    place = child;
  }
  put(place, flow);
}

}  // namespace dflop
