// Writes event files that tests/python/test_events.py reads with TensorBoard.
//
//   events_tool FOLDER
//
// Writes steps 10, 20, 30, then step 20 again like a run resumed from step 10.

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "lab/run/events.h"

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: events_tool FOLDER\n");
    return 2;
  }
  double time = 1'700'000'000;
  const auto now = [&] { return time += 0.5; };
  planish::lab::EventWriter writer(argv[1], 0, now);
  writer.Scalars(10, {{"test/error", 0.5}, {"train/loss", 2.25}});
  writer.Scalars(20, {{"test/error", 0.25}});
  writer.Scalars(30, {{"test/error", 0.125}});
  planish::lab::EventWriter resumed(argv[1], 11, now);
  resumed.Scalars(20, {{"test/error", 0.375}});
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
