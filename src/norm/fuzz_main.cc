#include "src/norm/fuzz.h"

/// Entry point of libFuzzer. An exception of FuzzNorm ends the program.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  planish::tests::FuzzNorm(data, size);
  return 0;
}
