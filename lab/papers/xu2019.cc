#include "lab/papers/paper.h"

// Xu, Sun, Zhang, Zhao & Lin 2019, "Understanding and Improving Layer Normalization". The paper
// prints neither seeds nor intervals.
namespace planish::lab {
namespace {

// Minutes of a run of preset "small" for each task, on one of two busy cores. Plans use them until
// a folder has its own runs.
constexpr double kMtMinutes = 1;
constexpr double kEnwik8Minutes = 1.3;
constexpr double kRtMinutes = 0.5;
constexpr double kSst5Minutes = 1;
constexpr double kMnistCnnMinutes = 1.4;
constexpr double kParserMinutes = 1.4;

using Norms = std::vector<std::string>;

// For TaskClaims::Claim::no_worse.
constexpr bool kNoWorse = true;

// Beginning of the sources of claims.
constexpr char kSource[] = "Xu et al. 2019, ";

// Rows of the tables, then further norms for a Transformer, then those for rows without time.
Norms TransformerNorms() {
  return {"none", "layer", "layer-simple", "detach", "detach-mean", "detach-std", "ada", "rms"};
}

Norms FeedForwardNorms() {
  Norms norms = TransformerNorms();
  norms.emplace_back("batch");
  return norms;
}

// Returns a column with the norms of a Transformer. `loss` names its curves: "train_" and "valid_"
// of it.
PaperColumn Column(const char* name, const char* label, const char* task, const char* metric,
                   const char* unit, const std::string& loss, double minutes) {
  PaperColumn c = NewColumn(name, label, task, metric, unit);
  c.train_curve = "train_" + loss;
  c.valid_curve = "valid_" + loss;
  c.norms = TransformerNorms();
  c.minutes = minutes;
  return c;
}

// Sets the placement of a Transformer's norms, which the runs of other placements do not have.
void SetPlacement(PaperColumn& column, const char* placement) {
  column.settings["placement"] = placement;
  column.settings["qk_norm"] = false;
}

// Machine translation. The paper's training sets are not available here; substitutes have the
// paper's language pair and direction if possible. English-Vietnamese has no substitute: En-Vi is a
// third corpus of short sentences.
// In the released code the chosen norm applies only to the two final norms (wiring=code); in the
// text it applies everywhere (wiring=paper).
PaperColumn Mt(const char* name, const char* label, const char* data, const char* direction,
               const char* wiring, const char* paper_data, const char* known_as) {
  PaperColumn c = Column(name, label, "mt", "test_bleu", "BLEU", "nats", kMtMinutes);
  c.settings = {{"data", data}, {"direction", direction}, {"wiring", wiring}};
  SetPlacement(c, "pre");
  c.paper_data = paper_data;
  c.data = known_as;
  c.layers = 12;
  return c;
}

PaperColumn Enwik8() {
  PaperColumn c = Column("enwik8", "Enwik8", "enwik8", "test_bits", "bits per character", "bits",
                         kEnwik8Minutes);
  SetPlacement(c, "post");
  c.lower_is_better = true;
  c.paper_data = "enwik8, 100 MB";
  c.data = "enwik8";
  c.layers = 12;
  return c;
}

PaperColumn Sentences(const char* name, const char* label, const char* paper_data,
                      double sampling_error, double minutes) {
  PaperColumn c = Column(name, label, name, "test_accuracy", "% accuracy", "loss", minutes);
  SetPlacement(c, "pre");
  c.paper_data = paper_data;
  c.data = name;
  c.sampling_error = sampling_error;
  c.layers = 4;
  c.seeds = 5;
  return c;
}

PaperColumn MnistCnn() {
  PaperColumn c =
      Column("mnist", "MNIST", "mnist-cnn", "test_accuracy", "% accuracy", "nll", kMnistCnnMinutes);
  c.paper_data = "MNIST";
  c.data = "mnist";
  c.sampling_error = 0.09;
  c.layers = 3;
  c.norms = FeedForwardNorms();
  c.seeds = 5;
  return c;
}

PaperColumn Parser() {
  PaperColumn c = Column("ptb", "PTB", "parser", "test_uas", "% UAS", "loss", kParserMinutes);
  c.paper_data = "Penn Treebank";
  c.data = "ptb";
  c.sampling_error = 0.14;
  c.layers = 3;
  c.norms = FeedForwardNorms();
  c.seeds = 5;
  return c;
}

// Returns the claim that a is better than b in at least `min_columns` of the columns.
PaperClaim Better(const std::string& text, const std::string& source, const std::string& a,
                  const std::string& b, const Norms& columns, int min_columns,
                  PaperClaim::Of of = PaperClaim::Of::kTest) {
  return {text, source, {{a, 1}, {b, -1}}, columns, min_columns, of};
}

// Returns the claim that a is no worse than b in at least `min_columns` of the columns.
PaperClaim NoWorse(const std::string& text, const std::string& source, const std::string& a,
                   const std::string& b, const Norms& columns, int min_columns) {
  PaperClaim claim = Better(text, source, a, b, columns, min_columns);
  claim.no_worse = true;
  return claim;
}

TaskClaims DeEnClaims() {
  return {
      "de-en",
      kSource,
      {{"LayerNorm is better than no norm: {layer} against {none} BLEU, German to English",
        "Table 1", "layer", "none"},
       {"DetachNorm (normalization only in the forward pass) is worse than no norm: {detach} "
        "against {none} BLEU",
        "Table 2", "none", "detach"},
       {"Detaching the deviation is worse than detaching nothing: {detach-std} against "
        "{layer-simple} BLEU",
        "Table 3", "layer-simple", "detach-std"},
       {"Detaching the mean is no worse than detaching nothing: {detach-mean} against "
        "{layer-simple} BLEU",
        "Table 3", "detach-mean", "layer-simple", "best", "", kNoWorse},
       {"AdaNorm is better than LayerNorm: {ada} against {layer} BLEU", "Table 4", "ada", "layer"}},
      {{"direction", "de-en"}}};
}

TaskClaims EnDeClaims() {
  return {
      "en-de",
      kSource,
      {{"Bias and gain do not help: {layer-simple} without against {layer} BLEU with them, English "
        "to German",
        "Table 1", "layer-simple", "layer", "best", "", kNoWorse},
       {"AdaNorm is better than LayerNorm: {ada} against {layer} BLEU", "Table 4", "ada", "layer"}},
      {{"direction", "en-de"}}};
}

TaskClaims Enwik8Claims() {
  return {
      "enwik8",
      kSource,
      {{"Without normalization bits per character are fewer than with LayerNorm ({none}, {layer}).",
        "Table 1", "none", "layer"},
       {"LayerNorm has a lower training loss than LayerNorm-simple.", "Figure 1", "layer",
        "layer-simple", "final", "train_bits"},
       {"LayerNorm-simple has a lower validation loss than LayerNorm.", "Figure 1", "layer-simple",
        "layer", "final", "valid_bits"},
       {"DetachNorm needs more bits than no normalization ({detach}, {none}).", "Table 2", "none",
        "detach"},
       {"Detaching the derivative of the variance costs bits ({detach-std}, {layer-simple}).",
        "Table 3", "layer-simple", "detach-std"},
       {"Detaching the derivative of the variance costs more bits than detaching that of the mean "
        "({detach-std}, {detach-mean}).",
        "Table 3", "detach-mean", "detach-std"}}};
}

TaskClaims RtClaims() {
  return {"rt",
          kSource,
          {{"Layer norm is better than none.", "Table 1: {layer}% and {none}%", "layer", "none"},
           {"Without bias and gain, layer norm is worse.", "Table 1: {layer-simple}% and {layer}%",
            "layer", "layer-simple"},
           {"DetachNorm is worse than no norm: forward normalization by itself does not help.",
            "Table 2: {detach}% and {none}%", "none", "detach"},
           {"Detaching the mean makes LayerNorm-simple worse.",
            "Table 3: {detach-mean}% and {layer-simple}%", "layer-simple", "detach-mean"},
           {"Detaching the variance does not make LayerNorm-simple worse.",
            "Table 3: {detach-std}% and {layer-simple}%", "detach-std", "layer-simple", "best", "",
            kNoWorse},
           {"AdaNorm is better than layer norm.", "Table 4: {ada}% and {layer}%", "ada", "layer"}}};
}

TaskClaims Sst5Claims() {
  return {"sst5",
          kSource,
          {{"Layer norm is better than none.", "Table 1: {layer}% and {none}%", "layer", "none"},
           {"Without bias and gain, layer norm is better.", "Table 1: {layer-simple}% and {layer}%",
            "layer-simple", "layer"},
           {"DetachNorm is better than no norm: here forward normalization helps.",
            "Table 2: {detach}% and {none}%", "detach", "none"},
           {"Detaching the mean does not make LayerNorm-simple worse.",
            "Table 3: {detach-mean}% and {layer-simple}%", "detach-mean", "layer-simple", "best",
            "", kNoWorse},
           {"Detaching the variance does not make LayerNorm-simple worse.",
            "Table 3: {detach-std}% and {layer-simple}%", "detach-std", "layer-simple", "best", "",
            kNoWorse},
           {"AdaNorm is better than layer norm.", "Table 4: {ada}% and {layer}%", "ada", "layer"}}};
}

TaskClaims MnistClaims() {
  return {
      "mnist",
      kSource,
      {{"Without a norm the network is more accurate than with layer norm ({none}% and {layer}%).",
        "Table 1", "none", "layer"},
       {"Layer norm is more accurate with bias and gain than without ({layer}% and "
        "{layer-simple}%).",
        "Table 1", "layer", "layer-simple"},
       {"Without a norm the network is more accurate than with DetachNorm ({none}% and {detach}%).",
        "Table 2", "none", "detach"},
       {"DetachNorm is more accurate than layer norm without bias and gain ({detach}% and "
        "{layer-simple}%).",
        "Table 2", "detach", "layer-simple"},
       {"Detaching only the mean does not harm ({detach-mean}%, with both derivatives "
        "{layer-simple}%).",
        "Table 3", "detach-mean", "layer-simple", "best", "", kNoWorse},
       {"Detaching only the variance does not harm ({detach-std}%, with both derivatives "
        "{layer-simple}%).",
        "Table 3", "detach-std", "layer-simple", "best", "", kNoWorse},
       {"AdaNorm is more accurate than layer norm ({ada}% and {layer}%).", "Table 4", "ada",
        "layer"}},
      {{"norm_at", "all"}}};
}

TaskClaims PtbClaims() {
  return {
      "ptb",
      kSource,
      {{"The parser is better with layer norm than without a norm.", "Table 1", "layer", "none"},
       {"The parser is better when layer norm has no bias and gain.", "Table 1", "layer-simple",
        "layer"},
       {"The parser is better with normalization only in the forward pass than without a norm.",
        "Table 2", "detach", "none"},
       {"The parser is better when the derivatives of mean and variance are detached.", "Table 2",
        "detach", "layer-simple"},
       {"The parser is better when the derivative of the variance is detached than when that of "
        "the mean is.",
        "Table 3", "detach-std", "detach-mean"},
       {"The parser is better with AdaNorm than with layer norm.", "Table 4", "ada", "layer"}}};
}

// Returns the claims about the runs of one task each.
std::vector<TaskClaims> ClaimsAboutTasks() {
  return {DeEnClaims(), EnDeClaims(),  Enwik8Claims(), RtClaims(),
          Sst5Claims(), MnistClaims(), PtbClaims()};
}

// Returns the columns of all tables, without printed values.
std::vector<PaperColumn> Columns() {
  return {
      Mt("en-de", "En-De", "multi30k", "en-de", "code", "WMT'14 English-German", "wmt14 en-de"),
      Mt("de-en", "De-En", "multi30k", "de-en", "code", "IWSLT'14 German-English", "iwslt14 de-en"),
      Mt("en-vi", "En-Vi", "tatoeba", "en-de", "code", "IWSLT'15 English-Vietnamese", ""),
      Enwik8(),
      Sentences("rt", "RT", "RT (movie reviews, two classes)", 1.29, kRtMinutes),
      Sentences("sst5", "SST5", "SST, five classes", 1.04, kSst5Minutes),
      MnistCnn(),
      Parser(),
      Mt("de-en-all", "De-En, every norm", "multi30k", "de-en", "paper", "IWSLT'14 German-English",
         "iwslt14 de-en"),
  };
}

// Adds the rows of Tables 1 to 4 and their printed values.
void AddRows(Paper& paper) {
  constexpr double kX = kPrintedDiverged;
  // A row's values, column by column.
  const auto row = [&](const char* norm, const char* label, const std::vector<double>& values) {
    paper.rows.push_back({norm, label});
    for (size_t i = 0; i < values.size(); ++i) paper.columns[i].printed[norm] = values[i];
  };
  row("none", "w/o Norm", {kX, 34.0, 28.4, 1.04, 76.85, 38.55, 99.14, 88.31});
  row("layer", "LayerNorm", {28.3, 35.5, 31.2, 1.07, 77.21, 39.23, 99.13, 89.12});
  row("layer-simple", "LayerNorm-simple", {28.4, 35.5, 31.6, 1.07, 76.66, 40.54, 99.09, 89.19});
  row("detach", "DetachNorm", {kX, 33.9, 27.7, 1.12, 76.40, 40.04, 99.10, 89.79});
  row("detach-mean", "Detach Mean", {28.3, 35.6, 31.3, 1.07, 75.02, 40.99, 99.25, 89.45});
  row("detach-std", "Detach Variance", {kX, 34.2, 29.8, 1.10, 77.04, 41.74, 99.10, 89.80});
  row("ada", "AdaNorm", {28.5, 35.6, 31.4, 1.07, 77.50, 40.54, 99.35, 89.23});
  paper.columns.back().printed = paper.FindColumn("de-en")->printed;
}

std::vector<PaperTable> Tables() {
  return {
      {"Table 1",
       "The bias and gain do not work on six out of eight datasets.",
       {{"none", ""}, {"layer", "none"}, {"layer-simple", "layer"}}},
      {"Table 2, top", "The effect of forward normalization.", {{"none", ""}, {"detach", "none"}}},
      {"Table 2, bottom",
       "The effect of the derivatives of the mean and variance.",
       {{"detach", ""}, {"layer-simple", "detach"}}},
      {"Table 3",
       "The derivative of variance is more important than that of mean for deeper networks.",
       {{"layer-simple", ""}, {"detach-mean", "layer-simple"}, {"detach-std", "layer-simple"}}},
      {"Table 4",
       "AdaNorm outperforms LayerNorm on seven datasets.",
       {{"none", "layer"}, {"layer", ""}, {"layer-simple", "layer"}, {"ada", "layer"}}},
  };
}

std::vector<PaperFigure> Figures() {
  return {
      {"Figure 1",
       "Convergence curves of LayerNorm and LayerNorm-simple. The bias and gain increase the risk "
       "of over-fitting.",
       {"en-vi", "enwik8"},
       {"layer", "layer-simple"}},
      {"Figure 2",
       "Convergence curves of LayerNorm-simple and DetachNorm on two translation datasets: those "
       "on which the paper's DetachNorm did not diverge.",
       {"de-en", "en-vi"},
       {"layer-simple", "detach"}},
      {"Figure 3",
       "Loss curves of LayerNorm and AdaNorm.",
       {"en-vi", "ptb", "de-en"},
       {"layer", "ada"}},
  };
}

// Returns the claims of sections 3.1 to 3.3 and 4.2 about several columns.
std::vector<PaperClaim> Claims() {
  const Norms all = {"en-de", "de-en", "en-vi", "enwik8", "rt", "sst5", "mnist", "ptb"};
  const Norms deep = {"en-de", "de-en", "en-vi", "enwik8"};
  using Of = PaperClaim::Of;
  return {
      Better("LayerNorm is better than no normalization on six of eight datasets.",
             "section 3.1 and Table 1", "layer", "none", all, 6),
      NoWorse(
          "The bias and gain do not work on six of eight datasets: LayerNorm-simple is no worse "
          "than LayerNorm.",
          "abstract, section 3.1 and Table 1", "layer-simple", "layer", all, 6),
      Better("The bias and gain do not help: LayerNorm-simple outperforms LayerNorm on four of "
             "eight datasets.",
             "section 3.1 and Table 1", "layer-simple", "layer", all, 4),
      Better("The bias and gain over-fit: LayerNorm ends with a lower training loss than "
             "LayerNorm-simple.",
             "section 3.1 and Figure 1", "layer", "layer-simple", {"en-vi", "enwik8"}, 2,
             Of::kTrainCurve),
      Better("The bias and gain over-fit: LayerNorm ends with a higher validation loss than "
             "LayerNorm-simple.",
             "section 3.1 and Figure 1", "layer-simple", "layer", {"en-vi", "enwik8"}, 2,
             Of::kValidCurve),
      Better("Forward normalization by itself does not help: DetachNorm is worse than no "
             "normalization.",
             "section 3.2 and Table 2, where five of eight columns show it", "none", "detach", all,
             5),
      Better("The derivatives of the mean and variance matter: LayerNorm-simple is better than "
             "DetachNorm on six of eight datasets.",
             "section 3.2 and Table 2", "layer-simple", "detach", all, 6),
      {"The derivatives of the mean and variance bring higher improvements than forward "
       "normalization: LayerNorm-simple is further above DetachNorm than DetachNorm above no "
       "normalization.",
       "section 3.2 and Table 2, where five of eight columns show it",
       {{"layer-simple", 1}, {"detach", -2}, {"none", 1}},
       all,
       5,
       Of::kTest},
      Better("In deeper networks the derivative of the variance matters more than that of the "
             "mean: detaching only the mean is better than detaching only the variance.",
             "section 3.3 and Table 3", "detach-mean", "detach-std", deep, 4),
      Better("AdaNorm is better than LayerNorm on seven of eight datasets.",
             "section 4.2 and Table 4", "ada", "layer", all, 7),
      Better("LayerNorm ends with a lower training loss than AdaNorm.", "section 4.2 and Figure 3",
             "layer", "ada", {"en-vi", "ptb", "de-en"}, 3, Of::kTrainCurve),
      Better("LayerNorm ends with a higher validation loss than AdaNorm.",
             "section 4.2 and Figure 3", "ada", "layer", {"en-vi", "ptb", "de-en"}, 3,
             Of::kValidCurve),
  };
}

std::vector<std::string> Notes(const PaperColumn& enwik8) {
  return {
      "The paper prints no seed counts and no intervals. The sampling error beside a printed value "
      "is that of one run, computed from the size of the test set. Many printed differences are "
      "smaller than two sampling errors.",
      "In the released code the chosen norm replaces only the two final norms, of encoder and "
      "decoder; all others stay LayerNorm. The first three columns do the same (wiring=code). In "
      "the last column the chosen norm is everywhere, as the text says (wiring=paper); its printed "
      "values are those of De-En.",
      enwik8.WithPrinted(
          "On Enwik8 the paper prints a better value without normalization ({none}) than with "
          "LayerNorm ({layer})."),
  };
}

}  // namespace

Paper MakeXu2019() {
  Paper paper;
  paper.name = "xu2019";
  paper.title = "Xu et al. 2019, Understanding and Improving Layer Normalization";
  paper.preset = "small";
  paper.columns = Columns();
  AddRows(paper);
  paper.tables = Tables();
  paper.figures = Figures();
  paper.claims = Claims();
  paper.task_claims = ClaimsAboutTasks();
  paper.notes = Notes(*paper.FindColumn("enwik8"));
  return paper;
}

}  // namespace planish::lab
