/* The C headers, as a C compiler reads them. tests/headers/CMakeLists.txt has the compilers. */
#include <planish/planish_cuda.h>
#include <planish/planish.h>

int main(void) {
  planish_norm_forward_args args;
  return planish_norm_forward_args_init(&args, sizeof args) == PLANISH_OK ? 0 : 1;
}
