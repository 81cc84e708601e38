#include "lab/program.h"

// The main function of planish, planish-demo, planish-models and planish-bench.
int main(int argc, char** argv) { planish::lab::RunProgram(argc, argv); }
