#ifndef PLANISH_CORE_H_
#define PLANISH_CORE_H_

// All C++ headers of the CPU library, and the contract of their functions. See planish/cuda.h for
// the contract of the functions for GPUs. The interface for C is planish/planish.h.
//
// Lifetime: a call is synchronous. When it returns, the library has written the outputs and keeps
// no pointer to an argument. Only RnnPackedParams and RnnGradientSums own memory; both copy what
// they need.
//
// Alignment: arrays need the alignment of their element type, alignof(T). No call needs more.
//
// Aliasing: an output must not overlap another array of the call, except where its comment allows
// it ("may be x itself").
//
// Concurrency: all functions can be called from several threads at once, if no call writes an array
// or object that another one uses. The exceptions are SetTarget and RnnGradientSums. If several
// calls run at once, only one uses the library's own threads; the others run on their callers'
// threads.
//
// Exceptions derive from planish::Error (error.h) or are std::bad_alloc. ArgumentError is thrown
// before an output is written, with one exception: an invalid PLANISH_THREADS is found when a call
// is first split over threads. If a caller's ParallelFor throws, the call passes the exception on
// and leaves the outputs undefined. After any exception further calls work.
//
// Determinism: the bits of a result depend only on the arguments and on the SIMD target (target.h).
// They are the same for any number of threads, any ParallelFor and any sizes of the machine's
// caches. The environment variable PLANISH_TUNING overrides the thresholds that the library derives
// from these sizes, such as PLANISH_TUNING=slow_l3=1,l2_bytes=2097152. The fields are in
// docs/tuning.md. The variable is read at the first call; if it is not valid, each call throws
// ArgumentError.
#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/dropout_norm.h"
#include "planish/error.h"
#include "planish/group_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/parallel.h"
#include "planish/pointwise_norm.h"
#include "planish/rnn.h"
#include "planish/target.h"
#include "planish/types.h"
#include "planish/version.h"
#include "planish/version_info.h"
#include "planish/weight_norm.h"

#endif  // PLANISH_CORE_H_
