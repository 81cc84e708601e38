#include "lab/tasks/order-embedding/order_embedding.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "lab/data/source.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/tasks/order-embedding/corpus.h"
#include "lab/tasks/order-embedding/model.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class OrderEmbeddingTest : public TaskTest<MakeOrderEmbedding> {
 protected:
  std::unique_ptr<Dataset> Load(const Sets& sets = {}) { return task->Load(Smoke(sets), {}); }

  static OrderEmbedding& ModelOf(Experiment& experiment) {
    return dynamic_cast<OrderEmbedding&>(experiment.model());
  }

  // Returns the losses of consecutive updates, over several epochs if necessary.
  std::vector<double> Train(Experiment& experiment, const Settings& settings, int64_t updates) {
    auto losses = LossesOf(*task, experiment, settings, updates, task->MakeClipping(settings));
    experiment.model().eval();
    return losses;
  }
};

TEST_F(OrderEmbeddingTest, DescribesItsData) {
  const auto data = Load();
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 400}, {"valid", 200}, {"test", 200}}));
  EXPECT_EQ(data->about.name, "synthetic scenes");
  EXPECT_THAT(data->about.description, HasSubstr("in the lexicon, 0.0% of the test words are not"));
  EXPECT_THAT(data->about.description, HasSubstr("; tested in one part"));
  const auto few = Load({{"train_images", "3"}, {"min_count", "3"}, {"longest", "4"}});
  const auto& corpus = dynamic_cast<const CaptionCorpus&>(*few);
  EXPECT_GT((corpus.test.symbols.rows == 0).sum().item<int64_t>(), 500);
  EXPECT_EQ(corpus.train.symbols.lengths.max().item<int64_t>(), 5);
  EXPECT_THAT(few->about.description, HasSubstr(" captions cut to 4 words"));
}

TEST_F(OrderEmbeddingTest, SymbolsAreTheWordsWithAnEnd) {
  const auto data = Load();
  const auto& corpus = dynamic_cast<const CaptionCorpus&>(*data);
  for (const int64_t caption : {0, 7, 1999}) {
    const auto words = WordsOf(corpus.train.text.captions[static_cast<size_t>(caption)], false);
    const Tensors batch = corpus.train.symbols.Select(at::tensor({caption}, at::kLong));
    ASSERT_EQ(batch[0].sizes(), at::IntArrayRef({std::ssize(words) + 1, 1}));
    EXPECT_EQ(batch[1][0].item<int64_t>(), std::ssize(words) + 1);
    for (size_t t = 0; t < words.size(); ++t) {
      EXPECT_EQ(batch[0][static_cast<int64_t>(t)][0].item<int64_t>(),
                corpus.lexicon.Number(words[t]));
    }
    EXPECT_EQ(batch[0][-1][0].item<int64_t>(), corpus.symbols() - 1);
  }
  EXPECT_TRUE(corpus.Knows("xyzzy dog"));
  EXPECT_FALSE(corpus.Knows("xyzzy, plugh!"));
}

TEST_F(OrderEmbeddingTest, FeaturesAreTheRowsOfTheirImages) {
  CaptionSet sparse, dense;
  sparse.text.images = {.rows = 3,
                        .width = 4,
                        .dense = {},
                        .begins = {0, 2, 2, 3},
                        .columns = {0, 3, 1},
                        .values = {0.6F, 0.8F, 1}};
  dense.text.images = {.rows = 3, .width = 4, .dense = {0.6F, 0, 0, 0.8F, 0, 0, 0, 0, 0, 1, 0, 0}};
  const at::Tensor cases = at::tensor({2, 0, 1, 2}, at::kLong);
  const at::Tensor expected =
      at::tensor({0.F, 1.F, 0.F, 0.F, 0.6F, 0.F, 0.F, 0.8F, 0.F, 0.F, 0.F, 0.F, 0.F, 1.F, 0.F, 0.F})
          .view({4, 4});
  EXPECT_TRUE(sparse.Features(cases).equal(expected));
  EXPECT_TRUE(dense.Features(cases).equal(expected));
}

TEST_F(OrderEmbeddingTest, SeesEveryImageOnceAnEpochWithOneOfItsCaptions) {
  const auto data = Load({{"train_images", "100"}});
  const auto experiment = Make(*data);
  at::Generator generator = Generator(1);
  const EpochPlan first = experiment->PlanEpoch(generator),
                  second = experiment->PlanEpoch(generator);
  EXPECT_EQ(first.batches(), 2);
  const at::Tensor images = std::get<0>(first.order.floor_divide(5).sort());
  EXPECT_TRUE(images.equal(at::arange(100)));
  EXPECT_FALSE(first.order.equal(second.order));
  const at::Tensor which = first.order.remainder(5);
  for (int64_t k = 0; k < 5; ++k) EXPECT_GT((which == k).sum().item<int64_t>(), 5);
  // Captions and features of a batch belong to the same images.
  const auto& corpus = dynamic_cast<const CaptionCorpus&>(*data);
  const at::Tensor cases = first.batch(0);
  const Tensors batch = experiment->Batch(cases);
  ASSERT_THAT(batch, SizeIs(3));
  EXPECT_EQ(batch[0].size(1), 50);
  EXPECT_TRUE(batch[2].equal(corpus.train.Features(cases.floor_divide(5))));
  EXPECT_TRUE(batch[1].equal(corpus.train.symbols.lengths.index_select(0, cases)));
  EXPECT_EQ(batch[0].size(0), batch[1].max().item<int64_t>());
}

TEST_F(OrderEmbeddingTest, GivesEveryNormTheSameStartAndTheSameBatches) {
  const auto data = Load();
  const auto a = Make(*data, {{"norm", "none"}}), b = Make(*data, {{"norm", "layer"}});
  at::Generator one = Generator(1), two = Generator(1);
  EXPECT_TRUE(a->PlanEpoch(one).order.equal(b->PlanEpoch(two).order));
  int shared = 0;
  for (const auto& item : a->model().named_parameters()) {
    const auto* other = b->model().named_parameters().find(item.key());
    if (other == nullptr) continue;
    EXPECT_TRUE(item.value().equal(*other)) << item.key();
    ++shared;
  }
  EXPECT_GE(shared, 5);  // words, both products of the GRU, weight and bias of the images
}

// Compares with the model's own embeddings, without chunks, sorting or blocks.
TEST_F(OrderEmbeddingTest, MetricsMatchTheModelsEmbeddings) {
  for (const std::string score : {"order", "symmetric"}) {
    const auto data = Load();
    const auto& corpus = dynamic_cast<const CaptionCorpus&>(*data);
    const auto experiment = Make(*data, {{"score", score}, {"valid_images", "130"}});
    OrderEmbedding& model = ModelOf(*experiment);
    model.eval();
    const at::NoGradGuard no_grad;
    const Tensors captions = corpus.valid.symbols.Select(at::arange(650));
    const at::Tensor errors = model.Errors(model.Captions(captions[0], captions[1]),
                                           model.Images(corpus.valid.Features(at::arange(130))));
    const Values values = experiment->Evaluate();
    // Captions of other lengths in a batch can change the last bits. Some of thousands of nearly
    // equal candidates then change places, and their ranks change by one.
    const auto ranks = [&](int64_t candidates, auto error, auto right) {
      std::vector<double> all;
      for (int64_t q = 0; q < (candidates == 130 ? 650 : 130); ++q) {
        double best = INFINITY;
        for (int64_t c = 0; c < candidates; ++c) {
          if (right(q, c)) best = std::min(best, error(q, c));
        }
        double rank = 1;
        for (int64_t c = 0; c < candidates; ++c) rank += !right(q, c) && error(q, c) <= best;
        all.push_back(rank);
      }
      return all;
    };
    const auto e = errors.accessor<float, 2>();
    const std::vector<double> by_caption = ranks(
        130, [&](int64_t q, int64_t c) { return static_cast<double>(e[q][c]); },
        [](int64_t q, int64_t c) { return q / 5 == c; });
    const std::vector<double> by_image = ranks(
        650, [&](int64_t q, int64_t c) { return static_cast<double>(e[c][q]); },
        [](int64_t q, int64_t c) { return c / 5 == q; });
    const auto share = [](const std::vector<double>& all, double limit) {
      return static_cast<double>(std::ranges::count_if(all, [&](double r) { return r <= limit; })) /
             static_cast<double>(all.size());
    };
    const auto mean = [](const std::vector<double>& all) {
      double sum = 0;
      for (const double r : all) sum += r;
      return sum / static_cast<double>(all.size());
    };
    EXPECT_NEAR(values.at("valid_image_r1"), share(by_caption, 1), 2.1 / 650) << score;
    EXPECT_NEAR(values.at("valid_image_r10"), share(by_caption, 10), 2.1 / 650) << score;
    EXPECT_NEAR(values.at("valid_caption_r5"), share(by_image, 5), 1.1 / 130) << score;
    EXPECT_NEAR(values.at("valid_image_mean"), mean(by_caption), 0.05) << score;
    EXPECT_NEAR(values.at("valid_caption_mean"), mean(by_image), 0.1) << score;
    EXPECT_DOUBLE_EQ(
        values.at("valid_sum"),
        values.at("valid_image_r1") + values.at("valid_image_r5") + values.at("valid_image_r10"));
    EXPECT_THAT(values, SizeIs(11));
    EXPECT_THAT(experiment->Test(), SizeIs(11));
  }
}

// By chance an image is among the first 10 of 200 in 5% of the searches.
TEST_F(OrderEmbeddingTest, LearnsWithEveryNormAndScore) {
  for (const std::string score : {"order", "symmetric"}) {
    for (const std::string norm : {"none", "layer"}) {
      const Sets sets = {{"norm", norm},      {"score", score},      {"train_images", "2000"},
                         {"features", "512"}, {"batch_size", "100"}, {"hidden", "64"}};
      const auto data = Load(sets);
      const auto experiment = Make(*data, sets);
      {
        const at::NoGradGuard no_grad;
        experiment->model().eval();
        EXPECT_LT(experiment->Test().at("test_image_r10"), 0.15);
      }
      const std::vector<double> losses = Train(*experiment, Smoke(sets), 80);
      EXPECT_LT(losses.back(), losses.front() / 2) << norm << score;
      const at::NoGradGuard no_grad;
      EXPECT_GT(experiment->Test().at("test_image_r10"), 0.3) << norm << score;
    }
  }
}

TEST_F(OrderEmbeddingTest, ComposedIsFused) {
  const auto data = Load();
  for (const std::string norm : {"none", "layer"}) {
    const Sets sets = {{"norm", norm}, {"lr", "1e-3"}};
    const auto with = [&](const std::string& cell) {
      Sets more = sets;
      more.emplace_back("cell", cell);
      return Train(*Make(*data, more), Smoke(more), 20);
    };
    const std::vector<double> fused = with("fused"), composed = with("composed");
    for (size_t i = 0; i < fused.size(); ++i) {
      // Sums of 4,900 terms in floats. At first, Adam divides by the root of a single squared
      // gradient. So rounding errors of gradients near 0 change a weight by up to the learning
      // rate.
      EXPECT_NEAR(composed[i], fused[i], 2e-4 * fused[i]) << norm << i;
    }
  }
}

TEST_F(OrderEmbeddingTest, ResumesToTheBit) {
  ExpectExactResume(*task, {{"norm", "none"}});
  ExpectExactResume(*task, {{"norm", "layer"}, {"score", "symmetric"}, {"adam", "theano"}});
}

TEST_F(OrderEmbeddingTest, TrainsThePaperPreset) {
  const Settings paper =
      Chosen("paper", {{"norm", "layer"}, {"train_images", "64"}, {"batch_size", "16"}});
  const auto data = task->Load(paper, {});
  at::manual_seed(1);
  const auto experiment = task->Make(paper, *data);
  const std::vector<double> losses = Train(*experiment, paper, 2);
  // No pair is much closer than another: about the margin for each of two terms of 240 pairs.
  EXPECT_NEAR(losses[0], 2 * 240 * 0.05, 0.5 * 2 * 240 * 0.05);
  EXPECT_LT(losses[1], losses[0]);
}

TEST_F(OrderEmbeddingTest, HasAMarginForEachScore) {
  const auto data = Load();
  const auto loss = [&](const Sets& sets) {
    const auto experiment = Make(*data, sets);
    return experiment->Loss(experiment->Batch(at::arange(0, 100, 5))).item<double>();
  };
  EXPECT_EQ(loss({{"margin", "0.05"}}), loss({}));
  EXPECT_NE(loss({{"margin", "0.2"}}), loss({}));
  EXPECT_EQ(loss({{"score", "symmetric"}, {"margin", "0.2"}}), loss({{"score", "symmetric"}}));
}

TEST_F(OrderEmbeddingTest, FindsImages) {
  const auto data = Load();
  const auto& corpus = dynamic_cast<const CaptionCorpus&>(*data);
  const auto experiment = Make(*data);
  experiment->model().eval();
  const at::NoGradGuard no_grad;
  auto& searcher = dynamic_cast<CaptionSearcher&>(*experiment);
  const std::string caption = "A red DOG, in the park!";
  const auto hits = searcher.Search(caption, 1000);
  ASSERT_THAT(hits, SizeIs(200));
  std::vector<int64_t> images;
  for (size_t i = 0; i < hits.size(); ++i) {
    images.push_back(hits[i].image);
    if (i > 0) {
      EXPECT_LE(hits[i].score, hits[i - 1].score);
    }
    EXPECT_THAT(hits[i].captions, SizeIs(5));
    EXPECT_EQ(hits[i].captions[2],
              corpus.test.text.captions[static_cast<size_t>(5 * hits[i].image + 2)]);
  }
  std::ranges::sort(images);
  for (size_t i = 0; i < images.size(); ++i) EXPECT_EQ(images[i], static_cast<int64_t>(i));
  EXPECT_EQ(searcher.Search(caption, 2)[1].image, hits[1].image);
  EXPECT_EQ(searcher.Search("red dog in the a park", 1)[0].captions.size(), 5u);
  try {
    searcher.Search("xyzzy", 1);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a word of the training captions, got \"xyzzy\""));
  }
  at::Generator generator = Generator(1);
  const auto samples = experiment->Samples(generator);
  ASSERT_THAT(samples, SizeIs(4));
  EXPECT_EQ(samples[1].title, corpus.valid.text.captions[25 * 5]);
  EXPECT_THAT(samples[1].text, HasSubstr("Its own image (*) has rank "));
  EXPECT_THAT(samples[1].text, HasSubstr(" of 100."));
}

// With 5,000 images, metrics are the average of five parts.
TEST_F(OrderEmbeddingTest, TestsInFivePartsIfThereAreEnoughImages) {
  const TestFolder folder;
  const auto npy = [](int64_t rows) {
    std::string header =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 3), }";
    header.append(118 - 1 - header.size(), ' ');
    std::string file = std::string("\x93NUMPY\x01") + '\0' + "v" + '\0' + header + '\n';
    std::mt19937_64 random(1);
    for (int64_t i = 0; i < 3 * rows; ++i) {
      const float x = static_cast<float>(random() % 1000) - 500;
      file += std::string(reinterpret_cast<const char*>(&x), 4);
    }
    return file;
  };
  const auto lines = [](int64_t images) {
    std::string text;
    for (int64_t i = 0; i < 5 * images; ++i) text += "a b" + std::to_string(i % 7) + "\n";
    return text;
  };
  for (const auto& [split, images] :
       {std::pair<std::string, int64_t>("train", 60), {"dev", 10}, {"test", 5'003}}) {
    WriteFile(folder / (split + "_ims.npy"), npy(images));
    WriteFile(folder / (split + "_caps.txt"), lines(images));
  }
  const auto data = task->Load(Smoke(), folder.path());
  EXPECT_THAT(data->about.description, HasSubstr("; tested in 5 parts of 1000 images"));
  const auto experiment = Make(*data, {{"hidden", "2"}});
  experiment->model().eval();
  const at::NoGradGuard no_grad;
  const Values values = experiment->Test();
  // Mean ranks are far from 1, and of 1,000 images, not of 5,003.
  EXPECT_GT(values.at("test_image_mean"), 100);
  EXPECT_LE(values.at("test_image_mean"), 1'000);
}

TEST_F(OrderEmbeddingTest, RefusesInvalidSettings) {
  const auto data = Load();
  EXPECT_THROW(Make(*data, {{"batch_size", "401"}}), UsageError);
  EXPECT_NO_THROW(Make(*data, {{"batch_size", "400"}}));
  EXPECT_THROW(Load({{"data", "multi30k"}}), UsageError);
  EXPECT_THROW(Smoke({{"norm", "rms"}}), UsageError);
}

TEST_F(OrderEmbeddingTest, TrainsOnRealCaptions) {
  const std::optional<fs::path> path = DataFolder("");
  if (!path || !fs::exists(*path / "multi30k/task2")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with multi30k/task2";
  }
  const Settings settings = Chosen("small", {{"train_images", "512"}, {"hidden", "64"}});
  const auto data = task->Load(settings, path);
  EXPECT_EQ(data->about.name, "multi30k");
  EXPECT_EQ(data->about.sizes.at("test"), 1000);
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  const std::vector<double> losses = Train(*experiment, settings, 12);
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace planish::lab
