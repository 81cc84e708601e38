#include "lab/tasks/order-embedding/order_embedding.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lab/base/escape.h"
#include "lab/engine/batches.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/tasks/order-embedding/corpus.h"
#include "lab/tasks/order-embedding/model.h"
#include "lab/tasks/order-embedding/ranking.h"
#include "lab/tasks/theano.h"

namespace planish::lab {

namespace {

// The paper's test: kFolds parts of kFoldImages images, each ranked separately.
constexpr int64_t kFolds = 5;
constexpr int64_t kFoldImages = 1000;
// Captions and images per evaluation batch.
constexpr int64_t kEvaluationCases = 256;
// Captions compared with all images per call.
constexpr int64_t kErrorRows = 512;
// Searches in the report, and images found by each.
constexpr int64_t kSamples = 4;
constexpr int64_t kFound = 3;

struct Measure {
  const char* name;
  const char* label;
  const char* unit;
  bool lower_is_better;
  double RankSummary::* value;
};

constexpr Measure kMeasures[] = {
    {"r1", "R@1", "%", false, &RankSummary::r1},
    {"r5", "R@5", "%", false, &RankSummary::r5},
    {"r10", "R@10", "%", false, &RankSummary::r10},
    {"median", "median rank", "", true, &RankSummary::median},
    {"mean", "mean rank", "", true, &RankSummary::mean},
};

struct Direction {
  const char* name;
  const char* label;
};

constexpr Direction kImage = {"image", "image retrieval"};
constexpr Direction kCaption = {"caption", "caption retrieval"};

std::string MetricName(const std::string& split, const Direction& direction, const char* measure) {
  return fmt::format("{}_{}_{}", split, direction.name, measure);
}

int64_t Folds(int64_t images) { return images >= kFolds * kFoldImages ? kFolds : 1; }

OrderEmbedding::Options ModelOptions(const Settings& s, const CaptionCorpus& corpus) {
  OrderEmbedding::Options options;
  options.cell = s.Text("norm") == "layer" ? "ln-gru" : "gru";
  options.composed = s.Text("cell") == "composed";
  options.gain = s.Real("gain");
  options.epsilon = s.Real("eps");
  options.words = corpus.symbols();
  options.word_size = s.Int("word_size");
  options.hidden = s.Int("hidden");
  options.features = corpus.train.text.images.width;
  options.order = s.Text("score") == "order";
  return options;
}

class Retrieval final : public Experiment, public CaptionSearcher {
 public:
  Retrieval(const Settings& s, const CaptionCorpus& corpus)
      : corpus_(corpus),
        batch_size_(s.Int("batch_size")),
        valid_images_(std::min(s.Int("valid_images"), corpus.valid.size())),
        margin_(s.Real("margin")),
        model_(ModelOptions(s, corpus)) {
    if (margin_ == 0) margin_ = s.Text("score") == "order" ? 0.05 : 0.2;
  }

  torch::nn::Module& model() override { return model_; }

  // Returns every image with one of its captions, as caption indices.
  EpochPlan PlanEpoch(at::Generator& generator) override {
    EpochPlan plan = ShuffledBatches(corpus_.train.size(), batch_size_, generator);
    plan.order = plan.order * kCaptionsPerImage +
                 at::randint(kCaptionsPerImage, plan.order.sizes(), generator, at::kLong);
    return plan;
  }

  // Returns captions [T, B] with their lengths [B], and features [B, F] of the images.
  Tensors Batch(const at::Tensor& cases) override {
    Tensors batch = corpus_.train.symbols.Select(cases);
    batch.push_back(corpus_.train.Features(cases.floor_divide(kCaptionsPerImage)));
    return batch;
  }

  at::Tensor Loss(const Tensors& batch) override {
    const at::Tensor errors =
        model_.Errors(model_.Captions(batch[0], batch[1]), model_.Images(batch[2]));
    return ContrastiveLoss(errors, margin_);
  }

  Values Evaluate() override {
    Values values;
    MeasureFold(corpus_.valid, 0, valid_images_, 1, "valid", values);
    return values;
  }

  Values Test() override {
    const int64_t images = corpus_.test.size(), folds = Folds(images);
    const int64_t size = folds > 1 ? kFoldImages : images;
    Values values;
    for (int64_t fold = 0; fold < folds; ++fold) {
      MeasureFold(corpus_.test, fold * size, size, folds, "test", values);
    }
    return values;
  }

  std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) override {
    const CaptionSet& set = corpus_.valid;
    const int64_t images = valid_images_;
    const at::Tensor places = PlacesOfImages(set, 0, images);
    std::vector<RunResult::Sample> samples;
    for (int64_t i = 0; i < std::min(kSamples, images); ++i) {
      const int64_t image = i * images / std::min(kSamples, images);
      const std::string& caption =
          set.text.captions[static_cast<size_t>(image * kCaptionsPerImage)];
      const at::Tensor errors = ErrorsOf(caption, places);
      const int64_t rank = (errors > errors[image]).logical_not().sum().item<int64_t>();
      std::string text;
      for (const Hit& hit : Best(set, errors, kFound)) {
        text += fmt::format("{:.4f}{} {}\n", hit.score, hit.image == image ? " *" : "",
                            fmt::join(hit.captions, " / "));
      }
      samples.push_back(
          {caption, fmt::format("{}Its own image (*) has rank {} of {}.", text, rank, images)});
    }
    return samples;
  }

  std::vector<Hit> Search(const std::string& caption, int64_t max_count) override {
    if (!corpus_.Knows(caption)) {
      throw UsageError(
          fmt::format("[order-embedding] caption must have a word of the training captions, got {}",
                      Quoted(caption)));
    }
    const CaptionSet& set = corpus_.test;
    if (!searched_.defined()) searched_ = PlacesOfImages(set, 0, set.size());
    return Best(set, ErrorsOf(caption, searched_), max_count);
  }

 private:
  // Returns embeddings [count, H] of images from `begin` on.
  at::Tensor PlacesOfImages(const CaptionSet& set, int64_t begin, int64_t count) {
    std::vector<at::Tensor> places;
    for (int64_t i = begin; i < begin + count; i += kEvaluationCases) {
      Poll();
      const int64_t end = std::min(i + kEvaluationCases, begin + count);
      places.push_back(model_.Images(OnDevice(set.Features(at::arange(i, end)))));
    }
    return at::cat(places);
  }

  // Returns embeddings [count, H] of captions from `begin` on. Encodes those of similar lengths
  // together.
  at::Tensor PlacesOfCaptions(const CaptionSet& set, int64_t begin, int64_t count) {
    const at::Tensor order =
        at::argsort(set.symbols.lengths.slice(0, begin, begin + count), /*stable=*/true, 0);
    std::vector<at::Tensor> places;
    for (int64_t i = 0; i < count; i += kEvaluationCases) {
      Poll();
      const at::Tensor cases = order.slice(0, i, std::min(i + kEvaluationCases, count)) + begin;
      const Tensors batch = OnDevice(set.symbols.Select(cases));
      places.push_back(model_.Captions(batch[0], batch[1]));
    }
    const at::Tensor sorted = at::cat(places);
    return at::empty_like(sorted).index_copy_(0, OnDevice(order), sorted);
  }

  // Adds the metrics of `count` images and their captions, divided by `folds`, to `values`.
  void MeasureFold(const CaptionSet& set, int64_t begin, int64_t count, int64_t folds,
                   const std::string& split, Values& values) {
    const at::Tensor images = PlacesOfImages(set, begin, count);
    const at::Tensor captions =
        PlacesOfCaptions(set, begin * kCaptionsPerImage, count * kCaptionsPerImage);
    const at::Tensor errors = at::empty({captions.size(0), images.size(0)});
    for (int64_t i = 0; i < captions.size(0); i += kErrorRows) {
      Poll();
      const at::Tensor some = captions.slice(0, i, i + kErrorRows);
      errors.slice(0, i, i + kErrorRows).copy_(model_.Errors(some, images));
    }
    const RankSummary by_caption = Summarize(ImageRanks(errors));
    const RankSummary by_image = Summarize(CaptionRanks(errors));
    const auto share = static_cast<double>(folds);
    for (const Measure& m : kMeasures) {
      values[MetricName(split, kImage, m.name)] += by_caption.*m.value / share;
      values[MetricName(split, kCaption, m.name)] += by_image.*m.value / share;
    }
    values[split + "_sum"] += (by_caption.r1 + by_caption.r5 + by_caption.r10) / share;
  }

  // Returns the errors [N] of a caption with images of these embeddings [N, H].
  at::Tensor ErrorsOf(const std::string& caption, const at::Tensor& places) {
    const Tensors batch = OnDevice(corpus_.Encode({caption}).Select(at::zeros({1}, at::kLong)));
    return model_.Errors(model_.Captions(batch[0], batch[1]), places)[0].cpu();
  }

  // Returns the images of the `max_count` smallest errors.
  static std::vector<Hit> Best(const CaptionSet& set, const at::Tensor& errors, int64_t max_count) {
    const at::Tensor order = at::argsort(errors, /*stable=*/true, 0);
    std::vector<Hit> hits;
    for (int64_t i = 0; i < std::min(max_count, order.size(0)); ++i) {
      const auto image = order[i].item<int64_t>();
      const auto first = set.text.captions.begin() + image * kCaptionsPerImage;
      hits.push_back({.score = -errors[image].item<double>(),
                      .image = image,
                      .captions = {first, first + kCaptionsPerImage}});
    }
    return hits;
  }

  const CaptionCorpus& corpus_;
  int64_t batch_size_, valid_images_;
  double margin_;
  OrderEmbedding model_;
  at::Tensor searched_;  // embeddings of the test images, after the first search
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Order-embeddings of images and captions";
  report.source = "Ba, Kiros & Hinton 2016, 6.1";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "score";
  report.curves = {"valid_image_r1", "valid_image_r5", "valid_image_r10"};
  report.headline = "test_sum";
  report.targets = {{"valid_sum", {0.5, 1, 1.5, 1.75, 2, 2.25}}};
  report.notes = {
      "The lexicon has the words of the training captions; that of the released code also has "
      "those of the validation captions.",
      fmt::format("Ranks are averaged over {} test sets of {} images each. With fewer test images "
                  "there is one test set.",
                  kFolds, kFoldImages),
      "Candidates with the same score as the right one rank before it.",
  };
  return report;
}

class OrderEmbeddingTask final : public Task {
 public:
  OrderEmbeddingTask() {
    name = "order-embedding";
    summary = "captions and images in one ordered space: a GRU and image features";
    settings = EngineSettings(NormSetting({"none", "layer"}));
    Default("batch_size", 128, "images of a batch, each with one of its captions");
    Default("epochs", 100, "passes over the training images");
    Default("lr", 1e-3);
    // With COCO's 885 updates an epoch, one every 295; the paper has 300.
    Default("evaluations_per_epoch", 3);
    AddSettings({
        {"clip_each", 2.0, "largest norm of each parameter's gradient; 0: no limit", 0, 1e9, {}},
        TheanoAdamSetting(),
        Choice("score", "order",
               "error of a caption and an image; order: order violation; symmetric: cosine",
               {"order", "symmetric"}),
        {"margin", 0.0, "margin of the loss; 0: .05 for order, .2 for symmetric", 0, 1e6, {}},
        CellSetting("the GRU"),
        {"hidden", 1024, "units of the GRU, and dimensions of the space", 1, 65536, {}},
        {"word_size", 300, "width of a word embedding", 1, 65536, {}},
        GainSetting(),
        EpsSetting(),
        Choice("data", "auto",
               "auto: files (train_ims.npy and so on) if they exist, else multi30k, else "
               "synthetic",
               {"auto", "files", "multi30k", "synthetic"}, {{"made", "synthetic"}}),
        {"features", 4096, "features of an image computed from descriptions", 1, 1 << 20, {}},
        {"min_count", 1, "rarer words of the training captions are unknown", 1, 1e9, {}},
        {"longest", 128, "maximum number of words of a caption", 1, 1 << 20, {}},
        {"train_images", 10'000'000, "maximum number of training images", 1, 1e9, {}},
        {"valid_images", kFoldImages, "maximum number of validation images", 1, 1e9, {}},
    });
    data_settings = {"data", "features", "min_count", "longest", "train_images"};
    presets = {
        {"small",
         "a GRU of 256 units for 10 epochs: some minutes a run on one core",
         {{"hidden", 256},
          {"word_size", 128},
          {"min_count", 2},
          {"epochs", 10},
          {"evaluations_per_epoch", 2}}},
        {"paper", "a GRU of 1,024 units for 100 epochs, as in the released code", {}},
        {"smoke",
         "a GRU of 32 units on 400 images for 4 epochs: a test that it runs",
         {{"hidden", 32},
          {"word_size", 16},
          {"features", 64},
          {"train_images", 400},
          {"valid_images", 100},
          {"batch_size", 50},
          {"epochs", 4},
          {"lr", 1e-2},
          {"evaluations_per_epoch", 1}}},
    };
    metrics = {{kTrainLoss, "training loss of the batches, summed over each", "", true}};
    for (const auto& [split, label] : {std::pair("valid", "validation"), {"test", "test"}}) {
      for (const Direction& direction : {kImage, kCaption}) {
        for (const Measure& m : kMeasures) {
          metrics.push_back({MetricName(split, direction, m.name),
                             fmt::format("{} {}, {}", label, m.label, direction.label), m.unit,
                             m.lower_is_better});
        }
      }
      metrics.push_back({fmt::format("{}_sum", split),
                         fmt::format("{} R@1 + R@5 + R@10, image retrieval", label), "%", false});
    }
    choose_by = "valid_sum";
    why_whole = "its loss compares all cases of a batch";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    auto corpus =
        std::make_unique<CaptionCorpus>(OpenCaptions(path, {.data = s.Text("data"),
                                                            .train_images = s.Int("train_images"),
                                                            .features = s.Int("features")}),
                                        s.Int("min_count"), s.Int("longest"));
    const int64_t images = corpus->test.size(), folds = Folds(images);
    corpus->about.description +=
        folds > 1 ? fmt::format("; tested in {} parts of {} images", folds, kFoldImages)
                  : "; tested in one part";
    return corpus;
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    Check(s, data);
    return std::make_unique<Retrieval>(s, dynamic_cast<const CaptionCorpus&>(data));
  }

  std::unique_ptr<Optimizer> MakeOptimizer(const NamedTensors& parameters,
                                           const Settings& s) const override {
    if (s.Text("adam") == "textbook") return Task::MakeOptimizer(parameters, s);
    return std::make_unique<TheanoAdam>(parameters, AdamOptionsOf(s));
  }

  Clipping MakeClipping(const Settings& s) const override {
    const Clipping each = ClipEach(s.Real("clip_each")), global = Task::MakeClipping(s);
    return [each, global](const std::vector<at::Tensor>& gradients) {
      if (each) each(gradients);
      if (global) global(gradients);
    };
  }
};

}  // namespace

std::unique_ptr<Task> MakeOrderEmbedding() { return std::make_unique<OrderEmbeddingTask>(); }

}  // namespace planish::lab
