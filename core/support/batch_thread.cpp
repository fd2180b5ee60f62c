#include "core/support/batch_thread.hpp"

#ifdef __linux__
#include <sched.h>
#endif

namespace dflop {

void become_batch_work() {
#ifdef __linux__
  const sched_param none{};
  constexpr int kThisThread = 0;
  if (::sched_getscheduler(kThisThread) != SCHED_OTHER) return;
  static_cast<void>(::sched_setscheduler(kThisThread, SCHED_BATCH, &none));
#endif
}

}  // namespace dflop
