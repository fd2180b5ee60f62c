// On which of the machine's processors a thread stays.
#pragma once

#include <functional>
#include <vector>

namespace dflop {

/// Of processors that share a core, as hyperthreads do, the first of each, then the others. `first_of`: the
/// first that shares a core with one.
std::vector<int> cores_first(std::vector<int> processors, const std::function<int(int)>& first_of);

/// The calling thread stays on that one of the processors which the process may use, in the order of
/// cores_first(). Where there is none, or the system does not allow it, it goes where it likes.
void stay_on_processor(int place);

}  // namespace dflop
