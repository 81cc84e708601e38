#ifndef PLANISH_BENCH_BASE_ANSWER_LINES_H_
#define PLANISH_BENCH_BASE_ANSWER_LINES_H_

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace planish::bench {

/// Prints answer(line), a JSON value, as a line on stdout for each nonempty line of stdin.
template <class Answer>
void AnswerLines(const Answer& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    fmt::print("{}\n", answer(line).dump());
    std::fflush(stdout);
  }
}

}  // namespace planish::bench

#endif  // PLANISH_BENCH_BASE_ANSWER_LINES_H_
