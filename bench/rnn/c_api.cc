// rnn_bench as a shared library, whose functions bench/rnn/torch_cells.py calls. For one thread
// only.

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "bench/base/c_session.h"
#include "bench/rnn/arrays.h"
#include "bench/rnn/contestants.h"
#include "lab/bench/alternate.h"
#include "lab/engine/memory.h"

namespace planish::bench::rnn {
namespace {

// The case being measured.
struct Session : CSession {
  Arena arena;
  Case c;
  Arrays arrays;
  std::optional<Reference> reference;
};

Session& TheSession() {
  static Session session;
  return session;
}

}  // namespace
}  // namespace planish::bench::rnn

extern "C" {

using planish::bench::rnn::TheSession;

/// Returns the error of a failed function, or the error of the result after rnn_bench_compare.
const char* rnn_bench_text() { return TheSession().text.c_str(); }

/// Begins a case: `arrays` gets the addresses named in torch_cells.py. Returns 0, or 1 on failure.
int rnn_bench_begin(const char* mode, const char* shape, int threads, const void** arrays) {
  auto& session = TheSession();
  return session.Fails([&] {
    planish::lab::KeepFreedMemory();  // like rnn_bench
    at::set_num_threads(threads);
    session.reference.reset();
    session.calls.clear();
    session.c = {.mode = planish::bench::rnn::ParseMode(mode),
                 .shape = planish::bench::rnn::ParseShape(shape)};
    session.arrays = session.arena.For(session.c);
    const auto& a = session.arrays;
    const auto& p = a.all;
    const auto& d = a.dall;
    const std::array<const void*, 24> all = {a.x,
                                             a.dy,
                                             a.h,
                                             a.c,
                                             a.y,
                                             a.dx,
                                             p.weight_ih,
                                             p.weight_hh,
                                             p.bias,
                                             p.ln_ih_weight,
                                             p.ln_ih_bias,
                                             p.ln_hh_weight,
                                             p.ln_hh_bias,
                                             p.ln_c_weight,
                                             p.ln_c_bias,
                                             d.weight_ih,
                                             d.weight_hh,
                                             d.bias,
                                             d.ln_ih_weight,
                                             d.ln_ih_bias,
                                             d.ln_hh_weight,
                                             d.ln_hh_bias,
                                             d.ln_c_weight,
                                             d.ln_c_bias};
    std::ranges::copy(all, arrays);
  });
}

/// Fills the outputs with NaN, so that rnn_bench_compare finds unwritten elements.
int rnn_bench_poison(const char* cell) {
  auto& session = TheSession();
  return session.Fails([&] {
    session.reference.emplace(planish::bench::rnn::ParseCell(cell), session.c, session.arrays);
    session.reference->Poison();
  });
}

/// Returns 1 if the outputs are wrong.
int rnn_bench_compare() {
  auto& session = TheSession();
  std::string wrong;
  const bool failed = session.Fails([&] { wrong = session.reference->Compare(); });
  if (!failed) session.text = wrong;
  return failed || !wrong.empty();
}

/// Prepares one of rnn_bench's contestants and checks its result. Fails if it is absent or wrong.
int rnn_bench_add(const char* name) {
  auto& session = TheSession();
  return session.Fails([&] {
    const auto contestant = planish::bench::rnn::MakeContestant(name, session.c, session.arrays);
    if (!contestant.call) throw std::runtime_error(contestant.absent);
    const planish::bench::rnn::Reference reference(planish::bench::rnn::CellOf(name), session.c,
                                                   session.arrays);
    const std::string wrong = planish::bench::rnn::CheckContestant(contestant, reference);
    if (!wrong.empty()) throw std::runtime_error(wrong);
    session.calls[name] = contestant.call;
  });
}

/// Returns the seconds of `calls` calls of an added contestant.
double rnn_bench_seconds(const char* name, int64_t calls) {
  return planish::bench::SecondsOf(TheSession().calls.at(name), calls);
}

}  // extern "C"
