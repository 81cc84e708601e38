#ifndef PLANISH_LAB_ENGINE_PROCESSES_H_
#define PLANISH_LAB_ENGINE_PROCESSES_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class ProcessGroup;
}

namespace planish::lab {

/// The processes that train one run together, each a part of every batch. They are started by
/// `torchrun`, by `srun`, or by hand with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. A program
/// started alone is a group of one.
///
/// All processes must call Sum, Meet, FirstText and AnyText in the same order, and SumInBackground
/// in the same order; the two sequences can interleave in any way. These functions throw RunError
/// if another process has ended. A process that hangs, or whose machine is lost, does not answer:
/// after kTimeout a thread ends this process with a line on stderr and exit status 1.
class Processes {
 public:
  static constexpr std::chrono::seconds kTimeout{20};

  /// Joins the group that the environment describes, and waits for the others. Throws UsageError
  /// for variables that are missing or do not fit together, and RunError if the others do not come.
  static std::unique_ptr<Processes> FromEnvironment();

  Processes();
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// True for the process that writes files and prints results.
  bool is_first() const { return rank_ == 0; }

  /// Adds a contiguous CPU tensor over all processes, in place. Adds neighbours in pairs, then
  /// these sums in pairs, and so on: results have the same bits in every process.
  void Sum(at::Tensor& values);

  /// Like Sum, but in a background thread and for a tensor on any device. The future completes with
  /// `values`, or with RunError. Sums are computed one after another, in the order of the calls.
  /// Needs more than one process.
  c10::intrusive_ptr<c10::ivalue::Future> SumInBackground(const at::Tensor& values);

  /// Returns the process group for c10d. It supports CPU tensors only. Needs more than one process.
  c10::intrusive_ptr<c10d::ProcessGroup> group() const;

  /// Waits until all processes are here.
  void Meet();

  /// Returns the text of the first process.
  std::string FirstText(const std::string& text);

  /// Returns the text of the first process whose text is not empty, or "".
  std::string AnyText(const std::string& text);

 private:
  class Connection;

  int rank_ = 0, size_ = 1;
  std::unique_ptr<Connection> connection_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_PROCESSES_H_
