// Fuzz target of libFuzzer for one reader, PLANISH_READER (docs/reliability.md#damaged-files).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lab/testing/test_folder.h"
#include "tests/readers/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const planish::lab::TestFolder folder;
  static const planish::lab::ReaderTrial trial = [] {
    const char* name = std::getenv("PLANISH_READER");
    return planish::lab::ReaderTrial(planish::lab::FindReader(name ? name : ""), folder.path());
  }();
  const std::string message = trial.Read({reinterpret_cast<const char*>(data), size});
  if (const std::string fault = trial.Check(message); !fault.empty()) {
    std::fprintf(stderr, "the message has %s: %s\n", fault.c_str(), message.c_str());
    std::abort();
  }
  return 0;
}
