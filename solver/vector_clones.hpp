// Functions that are compiled for several processors; the one that fits is chosen when the program is loaded.
#pragma once

// Sanitizers do not get along with code that runs while the program is loaded.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DFLOP_VECTOR_CLONES
#endif
#endif
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DFLOP_VECTOR_CLONES
#endif
#ifndef DFLOP_VECTOR_CLONES
#define DFLOP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
