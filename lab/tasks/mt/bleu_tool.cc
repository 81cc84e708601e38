// Computes BLEU for tests/python/test_bleu.py.
//   bleu_tool HYPOTHESES REFERENCES   prints the score with ten decimals
//   bleu_tool --tokens FILE           prints each line's tokens separated by blanks

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "lab/data/lines.h"
#include "lab/tasks/mt/bleu.h"

int main(int argc, char** argv) try {
  using planish::lab::ReadLines;
  if (argc != 3) {
    fmt::print(stderr, "usage: bleu_tool HYPOTHESES REFERENCES | --tokens FILE\n");
    return 2;
  }
  if (std::string_view(argv[1]) == "--tokens") {
    for (const std::string& line : ReadLines(argv[2])) {
      fmt::print("{}\n", fmt::join(planish::lab::Tokenize13a(line), " "));
    }
    return 0;
  }
  fmt::print("{:.10f}\n", planish::lab::CorpusBleu(ReadLines(argv[1]), ReadLines(argv[2])).score);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
