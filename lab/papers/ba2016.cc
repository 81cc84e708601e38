#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "lab/papers/paper.h"

// Lei Ba, Kiros & Hinton 2016, "Layer Normalization". The paper prints neither seeds nor intervals.
// Table 1 prints invariances of the norms, Tables 2 and 3 values, Figures 1 to 6 curves, whose
// claims are in the text.
namespace planish::lab {
namespace {

using Norms = std::vector<std::string>;

const Norms kTwo = {"none", "layer"};

// Beginning of the sources of claims.
constexpr char kSource[] = "Ba, Kiros & Hinton 2016, ";

// Time of order embeddings with layer norm over that of the baseline, 6.1.
constexpr char kShareOfTime[] = "60%";

PaperColumn Column(const char* name, const char* label, const char* task, const char* metric,
                   const char* unit) {
  PaperColumn c = NewColumn(name, label, task, metric, unit);
  c.lower_is_better = true;
  c.norms = kTwo;
  c.seeds = 3;
  return c;
}

// Columns are in the order of kTransformations.
PaperInvariances TableOne() {
  return {
      "Table 1",
      "Invariance properties under the normalization methods.",
      {{"batch", "Batch norm", {true, false, true, true, true, false}},
       {"weight", "Weight norm", {true, false, true, false, false, false}},
       {"layer", "Layer norm", {true, true, false, true, false, true}}},
      {"Section 5.1 says that all three are invariant to re-scaling the dataset. The table says "
       "that weight norm is not, and the table is right: the length of a unit's weights does not "
       "depend on the data.",
       "The conclusion (section 7) calls layer norm \"invariant to per training-case feature "
       "shifting\". That holds for shifts of a layer's summed inputs. For shifts of its inputs, "
       "which are dataset re-centering, it does not hold."}};
}

// Table 2: one model, eight values.
std::vector<PaperColumn> OrderEmbeddings() {
  std::vector<PaperColumn> columns;
  const auto add = [&](const char* name, const char* label, const char* metric, const char* unit,
                       double none, double layer, std::optional<double> sym = std::nullopt,
                       std::optional<double> theirs = std::nullopt) {
    PaperColumn c = Column(name, label, "order-embedding", metric, unit);
    c.lower_is_better = std::string(unit) != "%";
    c.train_curve = "train_loss";
    c.valid_curve = "valid_sum";
    c.runs_label = "Order embeddings";
    c.paper_data = "MS COCO, five times 1,000 images";
    c.data = "coco";
    c.printed = {{"none", none}, {"layer", layer}};
    if (sym) c.printed["sym"] = *sym;
    if (theirs) c.printed["vendrov"] = *theirs;
    c.drawn = {"valid_image_r1", "valid_image_r5", "valid_image_r10"};
    if (columns.empty()) {
      c.sampling_error = 0.71;
      c.minutes = 3;
    } else {
      c.runs_of = columns[0].name;
    }
    columns.push_back(std::move(c));
  };
  add("order-embedding", "caption R@1", "test_caption_r1", "%", 46.6, 48.5, 45.4, 46.7);
  add("caption-r5", "caption R@5", "test_caption_r5", "%", 79.3, 80.6);
  add("caption-r10", "caption R@10", "test_caption_r10", "%", 89.1, 89.8, 88.7, 88.9);
  add("caption-mean", "caption mean rank", "test_caption_mean", "rank", 5.2, 5.1, 5.8, 5.7);
  add("image-r1", "image R@1", "test_image_r1", "%", 37.8, 38.9, 36.3, 37.9);
  add("image-r5", "image R@5", "test_image_r5", "%", 73.6, 74.3);
  add("image-r10", "image R@10", "test_image_r10", "%", 85.7, 86.3, 85.8, 85.9);
  add("image-mean", "image mean rank", "test_image_mean", "rank", 7.9, 7.6, 9.0, 8.1);
  return columns;
}

// Table 3: one model with and without layer norm, "ours" and "ours + LN".
std::vector<PaperColumn> SkipThoughts() {
  std::vector<PaperColumn> columns;
  const auto add = [&](const char* name, const char* label, const char* metric, const char* unit,
                       bool lower, double original, double none, double layer, double month,
                       std::optional<double> sampling_error = std::nullopt) {
    PaperColumn c = Column(name, label, "skip-thoughts", metric, unit);
    c.lower_is_better = lower;
    c.train_curve = "train_loss";
    c.valid_curve = "valid_nats";
    c.runs_label = "Skip-thoughts";
    c.paper_data = "BookCorpus";
    c.data = "bookcorpus";
    c.printed = {{"kiros", original}, {"none", none}, {"layer", layer}, {"layer-month", month}};
    c.drawn = {"sick_r", "sick_mse", "mr", "cr", "subj", "mpqa"};
    c.sampling_error = sampling_error;
    if (columns.empty()) {
      c.minutes = 10;
    } else {
      c.runs_of = columns[0].name;
    }
    columns.push_back(std::move(c));
  };
  add("skip-thoughts", "SICK r", "test_sick_r", "", false, 0.848, 0.842, 0.854, 0.858, 0.004);
  add("sick-rho", "SICK rho", "test_sick_rho", "", false, 0.778, 0.767, 0.785, 0.788);
  add("sick-mse", "SICK MSE", "test_sick_mse", "", true, 0.287, 0.298, 0.277, 0.270);
  add("mr", "MR", "test_mr", "% accuracy", false, 75.5, 77.3, 79.5, 79.4, 0.39);
  add("cr", "CR", "test_cr", "% accuracy", false, 79.3, 81.8, 82.6, 83.1, 0.63);
  add("subj", "SUBJ", "test_subj", "% accuracy", false, 92.1, 92.6, 93.4, 93.7);
  add("mpqa", "MPQA", "test_mpqa", "% accuracy", false, 86.9, 87.9, 89.0, 89.3);
  return columns;
}

// `gain` is the initial gain of the norms. "paper" is 1 for layer norm and .1 for batch norm;
// section 6.2 discusses both values.
PaperColumn AttentiveReader(const std::string& gain = "paper") {
  PaperColumn c =
      Column("attentive-reader", "Attentive reader", "attentive-reader", "valid_error", "% error");
  c.settings = {{"gain", gain}};
  c.train_curve = "train_error";
  c.valid_curve = "valid_error";
  c.paper_data = "CNN's questions, passages of 4 sentences";
  c.data = "cnn";
  c.minutes = 2.2;
  if (gain != "paper") {
    c.name += "-gain-" + gain;
    c.label += ", gain " + gain;
    c.norms = {"layer", "batch"};
    return c;
  }
  c.norms = {"none", "layer", "batch", "batch-everywhere"};
  // Minima of the validation curves, from Cooijmans et al. 2016; layer norm's is not printed.
  c.printed = {{"none", 50.3}, {"batch", 49.5}, {"batch-everywhere", 50.0}};
  return c;
}

// The paper's experiment with fewer epochs than its 200, or `small`, for any machine.
PaperColumn Draw(bool small) {
  PaperColumn c = Column("draw", "DRAW, 20 epochs", "draw", "test_bound", "nats");
  if (small) {
    c.name += "-small";
    c.label = "DRAW, 16 glimpses";
    c.settings = {{"glimpses", 16}};
    c.minutes = 3;
  } else {
    c.preset = "paper";
    c.settings = {{"glimpses", 64}, {"epochs", 20}};
    c.printed = {{"none", 82.36}, {"layer", 82.09}};
    c.minutes = 70;
  }
  c.train_curve = "train_bound";
  c.valid_curve = "valid_bound";
  c.drawn = {"valid_bound", "test_bound"};  // as printed for the test set
  c.paper_data = "binarized MNIST";
  c.data = "binarized mnist";
  return c;
}

// The paper has batches of 8 with sequences of 500; it also makes claims about long sequences and
// small batches.
PaperColumn Handwriting(int64_t length, int64_t batch_size) {
  PaperColumn c = Column("handwriting", "Handwriting", "handwriting", "test_nats", "nats a line");
  if (length != 500 || batch_size != 8) {
    c.name += "-" + std::to_string(length) + "-" + std::to_string(batch_size);
    c.label += ", length " + std::to_string(length) + ", batch " + std::to_string(batch_size);
  }
  c.settings = {{"length", length}, {"batch_size", batch_size}};
  c.train_curve = "train_nats";
  c.valid_curve = "valid_nats";
  c.paper_data = "IAM-OnDB";
  c.data = "iam-ondb";
  c.minutes = 2 * static_cast<double>(length) / 500;
  return c;
}

// The runs of docs/reproduction.md; the figure's axis has 60 epochs.
PaperColumn Mnist(int64_t batch_size, int64_t epochs, int64_t evaluations) {
  PaperColumn c = Column("", "", "pi-mnist", "test_error", "%");
  c.name = "mnist-" + std::to_string(batch_size);
  c.label = "MNIST, batch " + std::to_string(batch_size);
  c.preset = "paper";
  c.settings = {
      {"batch_size", batch_size}, {"epochs", epochs}, {"evaluations_per_epoch", evaluations}};
  c.train_curve = "train_nll";
  c.valid_curve = "valid_nll";
  c.drawn = {"train_nll", "test_error"};  // as printed
  c.paper_data = "MNIST";
  c.data = "mnist";
  c.norms = {"none", "batch", "layer", "layer-simple"};
  c.minutes = batch_size == 4 ? 5 : 2.5;
  return c;
}

PaperColumn ConvNet() {
  PaperColumn c = Column("convnet", "ConvNet", "convnet", "test_error", "%");
  c.settings = {{"images", "digits"}};
  c.train_curve = "train_nll";
  c.valid_curve = "valid_nll";
  c.paper_data = "not specified";
  c.norms = {"none", "batch", "layer", "layer-channels"};
  c.minutes = 1.5;
  return c;
}

// T. Breloff's post on online layer normalization, which trains nothing.
PaperColumn OnlineLn(int64_t batch_size) {
  PaperColumn c = Column("", "", "online-ln", "test_error", "%");
  c.name = "online-" + std::to_string(batch_size);
  c.label = "Online LN, batch " + std::to_string(batch_size);
  c.settings = {{"batch_size", batch_size}};
  c.train_curve = "train_nll";
  c.valid_curve = "valid_nll";
  c.paper_data = "none";
  c.norms = {"none", "layer", "online-1", "online-0.3", "online-0.1", "online-0.03", "online-0.01"};
  c.minutes = batch_size == 1 ? 0.5 : 0.2;
  return c;
}

// Returns the claims of one column of Table 2, "caption R@1": "R@1 of caption retrieval".
TaskClaims OrderEmbeddingClaims(const PaperColumn& column) {
  const size_t space = column.label.find(' ');
  const std::string what =
      column.label.substr(space + 1) + " of " + column.label.substr(0, space) + " retrieval";
  TaskClaims of = {column.name, kSource, {}, {{"score", "order"}}};
  if (column.runs_of.empty()) {
    of.claims = {{fmt::format("Layer normalization reaches its best validation model in {} of the "
                              "time in which the baseline reaches its own",
                              kShareOfTime),
                  "section 6.1", "layer", "none", "seconds to best", "valid_sum"},
                 {"Layer normalization reaches the baseline's best result in fewer updates than "
                  "the baseline",
                  "section 6.1, Figure 1", "layer", "none", "steps to worse's best", "valid_sum"}};
  }
  of.claims.push_back({"Layer normalization is better in " + what + ": {layer} against {none}",
                       "Table 2", "layer", "none"});
  return of;
}

// Returns the claims of one column of Table 3, on the value at the end and on its curve.
TaskClaims SkipThoughtsClaims(const PaperColumn& column) {
  const bool accuracy = column.unit == "% accuracy";
  const std::string what = column.label == "SICK r"     ? "SICK Pearson correlation"
                           : column.label == "SICK rho" ? "SICK Spearman correlation"
                           : column.label == "SICK MSE" ? "SICK mean squared error"
                                                        : column.label + " accuracy";
  return {column.name,
          kSource,
          {{"With layer norm, " + what + " is better " +
                (accuracy ? "({layer}% and {none}%)." : "({layer} and {none})."),
            "Table 3", "layer", "none"},
           {"With layer norm, " + what + " is as good as the best without it in fewer steps.",
            "Figure 3", "layer", "none", "steps to worse's best",
            column.metric.substr(std::string("test_").size())}}};
}

TaskClaims AttentiveReaderClaims() {
  return {
      "attentive-reader",
      kSource,
      {{"Layer norm trains faster than no norm.", "section 6.2 and Figure 2", "layer", "none",
        "steps to worse's best"},
       {"Layer norm converges to a better validation result than no norm.",
        "section 6.2 and Figure 2", "layer", "none"},
       {"Layer norm converges to a better validation result than batch norm in the LSTM.",
        "section 6.2 and Figure 2", "layer", "batch"},
       {"Layer norm converges to a better validation result than batch norm everywhere.",
        "section 6.2 and Figure 2", "layer", "batch-everywhere"},
       {"Batch norm in the LSTM is better than no norm ({batch}% and {none}%, Cooijmans et al.).",
        "section 6.2 and Figure 2", "batch", "none"}},
      {{"gain", "paper"}}};
}

TaskClaims DrawClaims() {
  return {
      "draw",
      kSource,
      {{"With layer norm DRAW reaches 100 nats on the test set in fewer steps (it converges almost "
        "twice as fast).",
        "Figure 4", "layer", "none", "steps to 100"},
       {"With layer norm DRAW ends with a lower test bound ({layer} and {none} nats).",
        "section 6.4", "layer", "none", "final"}},
      {{"glimpses", 64}}};
}

TaskClaims HandwritingClaims() {
  return {
      "handwriting",
      kSource,
      {{"With layer normalization the log likelihood reaches the baseline's best in fewer updates.",
        "Figure 5", "layer", "none", "steps to worse's best", "valid_nats"},
       {"With layer normalization the log likelihood is no worse.", "section 6.5", "layer", "none",
        "best", "valid_nats", true}}};
}

// Returns the claims of one side of Figure 6.
TaskClaims MnistClaims(int batch_size) {
  const std::string side = batch_size == 4 ? "Figure 6 right" : "Figure 6 left";
  const std::string at = fmt::format("At batch size {}, layer norm ", batch_size);
  TaskClaims of = {fmt::format("mnist-{}", batch_size),
                   kSource,
                   {{at + "reaches 5% test error in fewer steps than batch norm.", side, "layer",
                     "batch", "steps to 0.05"},
                    {at + "ends with a lower training NLL than batch norm.", side, "layer", "batch",
                     "final", "train_nll"}},
                   {{"batch_size", batch_size}}};
  if (batch_size == 4) {
    of.claims.push_back(
        {at + "ends with a lower test error than batch norm.", side, "layer", "batch", "final"});
  }
  return of;
}

TaskClaims ConvNetClaims() {
  return {
      "convnet",
      kSource,
      {{"Layer normalization offers a speed-up over the network without normalization.",
        "section 6.7", "layer", "none", "steps to worse's best", "valid_error"},
       {"Batch normalization outperforms layer normalization.", "section 6.7", "batch", "layer"}},
      {{"images", "digits"}},
      "mnist"};
}

// Returns the claims about the runs of one task each.
std::vector<TaskClaims> ClaimsAboutTasks(const std::vector<PaperColumn>& columns) {
  std::vector<TaskClaims> all;
  for (const PaperColumn& column : columns) {
    if (column.task == "order-embedding") all.push_back(OrderEmbeddingClaims(column));
    if (column.task == "skip-thoughts") all.push_back(SkipThoughtsClaims(column));
  }
  all.push_back(AttentiveReaderClaims());
  all.push_back(DrawClaims());
  all.push_back(HandwritingClaims());
  for (const int batch_size : {128, 4}) all.push_back(MnistClaims(batch_size));
  all.push_back(ConvNetClaims());
  return all;
}

// Returns the columns of Tables 2 and 3, of sections 6.2 and 6.4 to 6.7, and of the post on online
// layer normalization.
std::vector<PaperColumn> Columns() {
  std::vector<PaperColumn> columns = OrderEmbeddings();
  for (PaperColumn& column : SkipThoughts()) columns.push_back(std::move(column));
  columns.push_back(AttentiveReader());
  for (const char* gain : {"1", "0.1"}) columns.push_back(AttentiveReader(gain));
  for (const bool small : {false, true}) columns.push_back(Draw(small));
  columns.push_back(Handwriting(500, 8));
  for (const int64_t length : {50, 200}) columns.push_back(Handwriting(length, 8));
  for (const int64_t batch_size : {4, 32, 64}) columns.push_back(Handwriting(500, batch_size));
  columns.push_back(Mnist(128, 20, 1));
  columns.push_back(Mnist(4, 4, 4));
  columns.push_back(ConvNet());
  for (const int64_t batch_size : {128, 1}) columns.push_back(OnlineLn(batch_size));
  return columns;
}

std::vector<PaperRow> Rows() {
  return {{"none", "Baseline"},
          {"layer", "Layer norm"},
          {"batch", "Batch norm"},
          {"batch-everywhere", "Batch norm everywhere"},
          {"layer-simple", "Layer norm without gain and bias"},
          {"layer-channels", "Layer norm over channels"},
          {"online-1", "Online, alpha 1"},
          {"online-0.3", "Online, alpha 0.3"},
          {"online-0.1", "Online, alpha 0.1"},
          {"online-0.03", "Online, alpha 0.03"},
          {"online-0.01", "Online, alpha 0.01"},
          {"sym", "Sym (Vendrov et al. 2016)", true},
          {"vendrov", "OE (Vendrov et al. 2016)", true},
          {"kiros", "Original (Kiros et al. 2015)", true},
          {"layer-month", "Layer norm, trained for a month", true}};
}

std::vector<PaperTable> Tables() {
  return {
      {"Table 2",
       "Order embeddings of captions and images.",
       {{"sym", ""}, {"vendrov", ""}, {"none", ""}, {"layer", "none"}},
       {"order-embedding", "caption-r5", "caption-r10", "caption-mean", "image-r1", "image-r5",
        "image-r10", "image-mean"}},
      {"Table 3",
       "Skip-thought vectors.",
       {{"kiros", ""}, {"none", ""}, {"layer", "none"}, {"layer-month", ""}},
       {"skip-thoughts", "sick-rho", "sick-mse", "mr", "cr", "subj", "mpqa"}},
      {"Figures 2, 4, 5 and 6",
       "Values at the end of the curves.",
       {{"none", ""}, {"layer", "none"}, {"batch", "none"}, {"batch-everywhere", "none"}},
       {"attentive-reader", "draw", "draw-small", "handwriting", "mnist-128", "mnist-4"}},
      {"Section 6.2",
       "The attentive reader with other initial gains: as printed (1 for layer norm, 0.1 for batch "
       "norm), and both 1 or both 0.1.",
       {{"layer", ""}, {"batch", "layer"}},
       {"attentive-reader", "attentive-reader-gain-1", "attentive-reader-gain-0.1"}},
      {"Long sequences and small batches",
       "Handwriting. Section 7 says that layer normalization helps most for long sequences and "
       "small batches.",
       {{"none", ""}, {"layer", "none"}},
       {"handwriting-50-8", "handwriting-200-8", "handwriting", "handwriting-500-4",
        "handwriting-500-32", "handwriting-500-64"}},
      {"Section 6.7",
       "Convolutional networks.",
       {{"none", ""}, {"layer", "none"}, {"layer-channels", "layer"}, {"batch", "layer"}},
       {"convnet"}},
      {"Online",
       "Online layer normalization with several alpha (T. Breloff's post).",
       {{"none", ""},
        {"layer", "none"},
        {"online-1", "layer"},
        {"online-0.3", "layer"},
        {"online-0.1", "layer"},
        {"online-0.03", "layer"},
        {"online-0.01", "layer"}},
       {"online-128", "online-1"}},
  };
}

std::vector<PaperFigure> Figures() {
  return {
      {"Figure 1",
       "Recall of images by order embeddings on validation data.",
       {"order-embedding"},
       kTwo,
       true},
      {"Figure 2",
       "Validation error of the attentive reader.",
       {"attentive-reader"},
       {"none", "layer", "batch", "batch-everywhere"},
       true},
      {"Figure 3", "Scores of skip-thoughts during training.", {"skip-thoughts"}, kTwo, true},
      {"Figure 4", "The variational bound of DRAW.", {"draw", "draw-small"}, kTwo, true},
      {"Figure 5",
       "Handwriting, nats a line.",
       {"handwriting", "handwriting-50-8", "handwriting-500-64"},
       kTwo,
       true},
      {"Figure 6",
       "Permutation-invariant MNIST.",
       {"mnist-128", "mnist-4"},
       {"none", "batch", "layer"},
       true},
  };
}

// Returns the claims of sections 6.1 to 6.7 about one or several experiments.
std::vector<PaperClaim> Claims() {
  using Of = PaperClaim::Of;
  const std::vector<std::pair<std::string, double>> layer_none = {{"layer", 1}, {"none", -1}};
  const Norms trained = {"order-embedding", "attentive-reader", "skip-thoughts", "draw",
                         "handwriting"};
  const Norms ended = {"order-embedding", "attentive-reader", "skip-thoughts", "draw"};
  const auto all = static_cast<int>(trained.size());
  return {
      {"Layer normalization reaches the baseline's best result in fewer updates than the baseline.",
       "sections 6.1 to 6.5, Figures 1 to 5", layer_none, trained, all, Of::kSteps},
      {"Layer normalization reaches the baseline's best result in less time than the baseline.",
       "sections 6.1 to 6.5", layer_none, trained, all, Of::kSeconds},
      {fmt::format("Order embeddings reach their best validation model with layer normalization in "
                   "{} of the time in which they reach it without.",
                   kShareOfTime),
       "section 6.1",
       layer_none,
       {"order-embedding"},
       1,
       Of::kSecondsToBest},
      {"Layer normalization ends better than the baseline.", "Tables 2 and 3, Figures 2 and 4",
       layer_none, ended, static_cast<int>(ended.size()), Of::kTest},
      {"In handwriting layer normalization ends no worse than the baseline (\"comparable\").",
       "section 6.5 and Figure 5",
       layer_none,
       {"handwriting"},
       1,
       Of::kTest,
       true},
      {"The attentive reader is better if the gain of layer normalization starts at 1 than if it "
       "starts at 0.1.",
       "section 6.2",
       {{"layer", 1}, {"layer", -1}},
       {"attentive-reader-gain-1"},
       1,
       Of::kTest,
       false,
       "attentive-reader-gain-0.1"},
      {"Layer normalization ends better than batch normalization in the attentive reader.",
       "section 6.2 and Figure 2",
       {{"layer", 1}, {"batch", -1}},
       {"attentive-reader"},
       1,
       Of::kTest},
      {"Layer normalization ends better than batch normalization on MNIST with batches of 4.",
       "section 6.6 and Figure 6",
       {{"layer", 1}, {"batch", -1}},
       {"mnist-4"},
       1,
       Of::kTest},
      {"In convolutional networks layer normalization is faster than no normalization.",
       "section 6.7",
       layer_none,
       {"convnet"},
       1,
       Of::kSteps},
      {"In convolutional networks batch normalization ends better than layer normalization.",
       "section 6.7",
       {{"batch", 1}, {"layer", -1}},
       {"convnet"},
       1,
       Of::kTest},
  };
}

std::vector<std::string> Notes() {
  return {
      "No printed value has a seed count or an interval.",
      "The attentive reader is measured on validation data, as in the paper. The values printed "
      "for it are the minima of the curves in Cooijmans et al. 2016.",
      "The paper trains DRAW for 200 epochs with 64 glimpses. Here one column has 20 epochs with "
      "64 glimpses, the other preset small with 16 glimpses.",
  };
}

}  // namespace

Paper MakeBa2016() {
  Paper paper;
  paper.name = "ba2016";
  paper.title = "Lei Ba, Kiros & Hinton 2016, Layer Normalization";
  paper.preset = "small";
  paper.columns = Columns();
  paper.rows = Rows();
  paper.invariances = TableOne();
  paper.tables = Tables();
  paper.figures = Figures();
  paper.claims = Claims();
  paper.task_claims = ClaimsAboutTasks(paper.columns);
  paper.notes = Notes();
  return paper;
}

}  // namespace planish::lab
