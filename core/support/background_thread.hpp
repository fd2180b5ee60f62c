// Threads that work beside a training loop.
#pragma once

namespace dflop {

/// For a thread that waits for work which the training loop hands it: Linux no longer interrupts the loop the
/// moment that it does so, which would hold it for as long as the work takes. Where that is refused, nothing
/// but time is lost.
void yield_to_training();

}  // namespace dflop
