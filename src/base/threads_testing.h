#ifndef PLANISH_SRC_BASE_THREADS_TESTING_H_
#define PLANISH_SRC_BASE_THREADS_TESTING_H_

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "planish/parallel.h"

namespace planish::tests {

/// Test that changes the number of threads.
class ThreadsTest : public ::testing::Test {
 protected:
  ~ThreadsTest() override { SetThreads(before_); }

 private:
  int before_ = Threads();
};

/// Expects the results of `call` to have the same bits on one thread, on several, and in several
/// calls at once, of which one gets the pool's threads.
template <class F>
void ExpectSameBitsOnThreads(const F& call) {
  SetThreads(1);
  const auto expected = call();
  SetThreads(4);
  EXPECT_EQ(call().DiffersIn(expected), "");
  std::vector<std::string> differences(3);
  std::vector<std::thread> callers;
  for (std::string& difference : differences) {
    callers.emplace_back([&] { difference = call().DiffersIn(expected); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(differences, std::vector<std::string>(3));
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_BASE_THREADS_TESTING_H_
