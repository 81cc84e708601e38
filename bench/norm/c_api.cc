// norm_bench as a shared library, whose functions bench/norm/peer.py calls. For one thread only.

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/base/c_session.h"
#include "bench/norm/peers.h"
#include "lab/bench/alternate.h"
#include "lab/bench/arena.h"
#include "lab/bench/reference.h"

namespace planish::bench {
namespace {

// The case being measured.
struct Session : CSession {
  Arena arena;
  Case c;
  Arrays arrays;
  std::unique_ptr<Reference> reference;
};

Session& TheSession() {
  static Session session;
  return session;
}

}  // namespace
}  // namespace planish::bench

extern "C" {

using planish::bench::TheSession;

/// Returns the error of a failed function, or the error of the result after norm_bench_compare.
const char* norm_bench_text() { return TheSession().text.c_str(); }

/// Begins a case: `arrays` gets x, dy, gain, bias, mean, rstd, out, dgain, dbias. Returns 0, or 1
/// on failure.
int norm_bench_begin(const char* direction, const char* type, int64_t rows, int64_t cols,
                     int threads, const void** arrays) {
  auto& session = TheSession();
  return session.Fails([&] {
    at::set_num_threads(threads);
    session.c = {.direction = planish::bench::ParseDirection(direction),
                 .type = planish::bench::ParseType(type),
                 .rows = rows,
                 .cols = cols};
    session.reference.reset();
    session.calls.clear();
    const planish::bench::Arrays a = session.arena.For(session.c);
    session.arrays = a;
    const void* all[] = {a.x, a.dy, a.gain, a.bias, a.mean, a.rstd, a.out, a.dgain, a.dbias};
    std::copy(std::begin(all), std::end(all), arrays);
  });
}

/// Fills the outputs with NaN, so that norm_bench_compare finds unwritten elements.
int norm_bench_poison(const char* method) {
  auto& session = TheSession();
  return session.Fails([&] {
    session.reference =
        std::make_unique<planish::bench::Reference>(method, session.c, session.arrays);
    session.reference->Poison();
  });
}

/// Returns 1 if the outputs are wrong.
int norm_bench_compare() {
  auto& session = TheSession();
  std::string wrong;
  const bool failed = session.Fails([&] { wrong = session.reference->Compare(false); });
  if (!failed) session.text = wrong;
  return failed || !wrong.empty();
}

/// Prepares one of norm_bench's contestants and checks its result. Fails if it is absent or wrong.
int norm_bench_add(const char* name) {
  auto& session = TheSession();
  return session.Fails([&] {
    std::string wrong;
    auto contestant = planish::bench::MakeContestant(name, session.c, session.arrays, wrong);
    if (!contestant.call) throw std::runtime_error(contestant.absent);
    if (!wrong.empty()) throw std::runtime_error(wrong);
    session.calls[name] = std::move(contestant.call);
  });
}

/// Returns the seconds of `calls` calls of an added contestant.
double norm_bench_seconds(const char* name, int64_t calls) {
  return planish::bench::SecondsOf(TheSession().calls.at(name), calls);
}

}  // extern "C"
