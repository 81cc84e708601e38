#include "lab/papers/paper.h"

// Lei Ba, Kiros & Hinton 2016, "Layer Normalization". Section 6.6 prints curves (Figure 6) and no
// table: its claims are the task's own.
namespace planish::lab {

Paper MakeBa2016() {
  const auto column = [](int64_t batch_size, int64_t epochs, int64_t evaluations) {
    PaperColumn c;
    c.name = "mnist-" + std::to_string(batch_size);
    c.label = "MNIST, batch " + std::to_string(batch_size);
    c.task = "pi-mnist";
    // The figure's axis has 60 epochs: the runs of docs/reproduction.md have fewer, which is what
    // an hour on one core allows.
    c.settings = {
        {"batch_size", batch_size}, {"epochs", epochs}, {"evaluations_per_epoch", evaluations}};
    c.metric = "test_error";
    c.lower_is_better = true;
    c.unit = "%";
    c.train_curve = "train_nll";
    c.valid_curve = "valid_nll";
    c.paper_data = "MNIST";
    c.data = "mnist";
    c.layers = 2;
    c.norms = {"none", "batch", "layer", "layer-simple"};
    c.seeds = 3;
    c.minutes = batch_size == 4 ? 5 : 2.5;
    return c;
  };
  Paper paper;
  paper.name = "ba2016";
  paper.title = "Lei Ba, Kiros & Hinton 2016, Layer Normalization";
  paper.preset = "paper";
  paper.columns = {column(128, 20, 1), column(4, 4, 4)};
  return paper;
}

}  // namespace planish::lab
