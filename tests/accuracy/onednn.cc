// oneDNN's layer norm of the rows of a file.
//   planish_accuracy_onednn apply IN OUT ROWS COLS
//   planish_accuracy_onednn version
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/accuracy/onednn_layer_norm.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "version") {
    const dnnl_version_t* version = dnnl_version();
    std::printf("%d.%d.%d\n", version->major, version->minor, version->patch);
    return 0;
  }
  if (argc != 6) {
    std::fprintf(stderr, "usage: planish_accuracy_onednn version | apply IN OUT ROWS COLS\n");
    return 2;
  }
  planish::tests::Rows rows(std::atoll(argv[4]), std::atoll(argv[5]));
  const auto cols = static_cast<size_t>(rows.cols);
  if (!rows.Read(argv[2])) {
    std::fprintf(stderr, "%s does not hold two matrices of %s x %s floats\n", argv[2], argv[4],
                 argv[5]);
    return 1;
  }
  OneDnnLayerNorm(rows, std::vector<float>(cols, 1), std::vector<float>(cols, 0), 1e-5f);
  if (rows.Write(argv[3])) return 0;
  std::fprintf(stderr, "cannot write %s\n", argv[3]);
  return 1;
}
