// The host's operations are compiled twice from the same files, for every x86-64 and for AVX2 with fused
// multiply-add, which is three times as fast; make_host_kernels() chooses. Eigen is renamed in the second,
// for a linker keeps one of the functions that have one name.
#pragma once

#ifdef DFLOP_HOST_AVX2
#define DFLOP_HOST_TARGET avx2
#define Eigen EigenAvx2
#else
#define DFLOP_HOST_TARGET portable
#endif
