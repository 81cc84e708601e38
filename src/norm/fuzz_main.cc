#include "src/norm/fuzz.h"

/// The entry of libFuzzer. FuzzNorm throws what it finds, which ends the program.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  planish::tests::FuzzNorm(data, size);
  return 0;
}
