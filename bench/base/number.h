#ifndef PLANISH_BENCH_BASE_NUMBER_H_
#define PLANISH_BENCH_BASE_NUMBER_H_

#include <charconv>
#include <string>
#include <system_error>

namespace planish::bench {

/// Parses all of `text` as a positive number into `number`. Returns false on failure.
template <class Number>
bool ParsePositive(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0;
}

}  // namespace planish::bench

#endif  // PLANISH_BENCH_BASE_NUMBER_H_
