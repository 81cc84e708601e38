#include "lab/tasks/parser/parser.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/tasks/parser/decoding.h"
#include "lab/tasks/parser/features.h"
#include "lab/tasks/parser/synthetic_trees.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// "Anna sees the dog ." with one more sentence, so that "sees" occurs twice.
const std::string kAnna =
    "1\tAnna\t_\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n2\tsees\t_\tVERB\tVBZ\t_\t0\troot\t_\t_\n"
    "3\tthe\t_\tDET\tDT\t_\t4\tdet:x\t_\t_\n4\tdog\t_\tNOUN\tNN\t_\t2\tobj\t_\t_\n"
    "5\t.\t_\tPUNCT\t.\t_\t2\tpunct\t_\t_\n\n";
const std::string kSees = "1\tSEES\t_\tVERB\tVBZ\t_\t0\troot\t_\t_\n\n";
// Not projective: 1-3 and 2-4 cross.
const std::string kCrossing =
    "1\tAnna\t_\tPROPN\tNNP\t_\t3\tnsubj\t_\t_\n2\tsees\t_\tVERB\tVBZ\t_\t4\tdet\t_\t_\n"
    "3\tthe\t_\tDET\tDT\t_\t0\troot\t_\t_\n4\tdog\t_\tNOUN\tNN\t_\t3\tobj\t_\t_\n\n";

TEST(ParserVocabulary, NumbersWordsTagsAndRelations) {
  const Treebank treebank = ParseConllu(kAnna + kSees, "");
  const ParserVocabulary vocabulary(treebank.trees, {});
  EXPECT_EQ(vocabulary.words(), 3 + 1);  // only sees, in lower case, occurs twice
  EXPECT_EQ(vocabulary.tags(), 3 + 5);
  EXPECT_EQ(vocabulary.labels(), 5);  // det nsubj obj punct root
  EXPECT_EQ(vocabulary.tokens(), 4 + 8 + 1 + 5);
  EXPECT_EQ(vocabulary.label_list()[0].relation, "det");
  EXPECT_TRUE(vocabulary.label_list()[4].at_root);
  EXPECT_FALSE(vocabulary.label_list()[4].elsewhere);
  EXPECT_FALSE(vocabulary.label_list()[0].at_root);
  const EncodedSentence anna = vocabulary.Encode(treebank.trees[0]);
  EXPECT_THAT(anna.words, ElementsAre(1, 2, 3, 2, 2, 2));
  // From 4: none, ROOT, unknown, DET, NOUN, PROPN, PUNCT, VERB.
  EXPECT_THAT(anna.tags, ElementsAre(5, 9, 11, 7, 8, 10));
  EXPECT_THAT(anna.tree.heads, ElementsAre(-1, 2, 0, 4, 2, 2));
  EXPECT_THAT(anna.tree.labels, ElementsAre(-1, 1, 4, 0, 2, 3));
  EXPECT_THAT(anna.scored, ElementsAre(false, true, true, true, true, false));

  const ParserVocabulary other(treebank.trees, {.xpos = true, .subtypes = true, .min_count = 1});
  EXPECT_EQ(other.words(), 3 + 5);
  EXPECT_EQ(other.label_list()[0].relation, "det:x");
  const Treebank strange = ParseConllu("1\tx\t_\tX\tX\t_\t0\tdep\t_\t_\n\n", "");
  const EncodedSentence unknown = other.Encode(strange.trees[0]);
  EXPECT_EQ(unknown.words[1], 2);
  EXPECT_EQ(unknown.tags[1], 8 + 2);
  EXPECT_EQ(unknown.tree.labels[1], -1);
}

TEST(IsPunctuation, KnowsBothTagSets) {
  for (const char* tag : {"PUNCT", "``", "''", ",", ".", ":"}) {
    EXPECT_TRUE(IsPunctuation({"x", tag, "_", 0, "dep"})) << tag;
  }
  for (const char* tag : {"SYM", "NN", "$", "-LRB-"}) {
    EXPECT_FALSE(IsPunctuation({"x", tag, "_", 0, "dep"})) << tag;
  }
}

// The expected features of a state: after S S L(nsubj) S S L(det), the stack is ROOT sees dog, the
// buffer the full stop.
TEST(ExtractFeatures, GivesTheFeaturesOfChenAndManning) {
  const Treebank treebank = ParseConllu(kAnna + kSees, "");
  const ParserVocabulary vocabulary(treebank.trees, {.min_count = 1});
  const EncodedSentence anna = vocabulary.Encode(treebank.trees[0]);
  ParserState state(5);
  const auto transitions = Oracle(anna.tree).value();
  for (size_t i = 0; i < 6; ++i) state.Apply(transitions[i]);
  ASSERT_EQ(state.stack(0), 4);
  std::array<int32_t, kFeatures> features;
  ExtractFeatures(state, anna, vocabulary, features);
  const int32_t no = ParserState::kNone;
  // Stack dog sees ROOT, buffer "." and nothing; dog has the child "the" on the left, sees "Anna".
  const std::vector<int32_t> seen = {4, 2,  0,  5,  no, no,  //
                                     3, no, no, no, no, no, 1, no, no, no, no, no};
  for (size_t i = 0; i < seen.size(); ++i) {
    const bool none = seen[i] == no;
    const auto word = static_cast<size_t>(std::max(seen[i], 0));
    EXPECT_EQ(features[i], none ? vocabulary.NoWord() : anna.words[word]) << i;
    EXPECT_EQ(features[18 + i], none ? vocabulary.NoTag() : anna.tags[word]) << i;
    if (i < 6) continue;
    const int32_t label = none ? -1 : anna.tree.labels[word];
    EXPECT_EQ(features[36 + i - 6], vocabulary.NoRelation() + 1 + label) << i;
  }
}

TEST(ExtractFeatures, SeesGrandchildren) {
  // 1 <- 2 <- 3 -> 4 -> 5, with 3 the root.
  EncodedSentence sentence;
  sentence.words = sentence.tags = {0, 1, 2, 3, 4, 5};
  sentence.tree = {{-1, 2, 3, 0, 3, 4}, {-1, 0, 0, 0, 0, 0}};
  ParserState state(5);
  const auto transitions = Oracle(sentence.tree).value();
  for (size_t i = 0; i + 1 < transitions.size(); ++i) state.Apply(transitions[i]);
  std::array<int32_t, kFeatures> features;
  ExtractFeatures(state, sentence, ParserVocabulary(), features);
  // Dependents of word 3: left, right, second left, second right, left of left, right of right.
  EXPECT_THAT(std::vector<int32_t>(features.begin() + 6, features.begin() + 12),
              ElementsAre(2, 4, 0, 0, 1, 5));
}

// A scorer that knows the trees reproduces each of them, independently of the others in the batch.
TEST(Decode, FollowsTheScores) {
  const Treebank treebank = ParseConllu(MakeConllu(60, 5), "");
  const ParserVocabulary vocabulary(treebank.trees, {});
  std::vector<EncodedSentence> sentences;
  for (const DependencyTree& tree : treebank.trees) {
    sentences.push_back(vocabulary.Encode(tree));
    if (!IsProjective(sentences.back().tree)) sentences.pop_back();
  }
  // All unfinished sentences are at the same step.
  size_t step = 0;
  const auto trees = Decode(sentences, vocabulary, [&](const at::Tensor& x) {
    at::Tensor logits = at::zeros({x.size(0), 1 + 2 * vocabulary.labels()});
    int64_t row = 0;
    for (const EncodedSentence& sentence : sentences) {
      const auto oracle = Oracle(sentence.tree).value();
      if (step >= oracle.size()) continue;
      logits[row++][NumberOf(oracle[step], vocabulary.labels())] = 1;
    }
    EXPECT_EQ(row, x.size(0));
    ++step;
    return logits;
  });
  for (size_t i = 0; i < trees.size(); ++i) {
    EXPECT_EQ(trees[i].heads, sentences[i].tree.heads);
    EXPECT_EQ(trees[i].labels, sentences[i].tree.labels);
  }
}

// Any scores give a tree with one root, with relations seen at such places.
TEST(Decode, GivesTreesForAnyScores) {
  const Treebank treebank = ParseConllu(MakeConllu(60, 5), "");
  const ParserVocabulary vocabulary(treebank.trees, {});
  std::vector<EncodedSentence> sentences;
  for (const DependencyTree& tree : treebank.trees) sentences.push_back(vocabulary.Encode(tree));
  at::manual_seed(1);
  const auto trees = Decode(sentences, vocabulary, [&](const at::Tensor& x) {
    return at::randn({x.size(0), 1 + 2 * vocabulary.labels()});
  });
  for (const Tree& tree : trees) {
    int roots = 0;
    for (size_t word = 1; word < tree.heads.size(); ++word) {
      const bool is_root = tree.heads[word] == 0;
      roots += is_root;
      ASSERT_GE(tree.heads[word], 0);
      const auto& label = vocabulary.label_list()[static_cast<size_t>(tree.labels[word])];
      EXPECT_TRUE(is_root ? label.at_root : label.elsewhere) << label.relation;
    }
    EXPECT_EQ(roots, 1);
    EXPECT_TRUE(IsProjective(tree));
  }
}

TEST(Score, CountsWordsButNoPunctuation) {
  const Treebank treebank = ParseConllu(kAnna + kSees, "");
  const ParserVocabulary vocabulary(treebank.trees, {});
  const std::vector<EncodedSentence> gold = {vocabulary.Encode(treebank.trees[0])};
  std::vector<Tree> trees = {gold[0].tree};
  trees[0].heads[5] = 1;   // the full stop
  trees[0].heads[1] = 3;   // a wrong head with the right relation
  trees[0].labels[3] = 2;  // a wrong relation with the right head
  const Attachment score = Score(trees, gold);
  EXPECT_EQ(score.unlabelled, 3.0 / 4);
  EXPECT_EQ(score.labelled, 2.0 / 4);
}

TEST(MakeExamples, TakesProjectiveSentencesAndKnownRelations) {
  const Treebank train = ParseConllu(kAnna + kSees + kCrossing, "");
  const ParserVocabulary vocabulary(train.trees, {});
  std::vector<EncodedSentence> sentences;
  for (const DependencyTree& tree : train.trees) sentences.push_back(vocabulary.Encode(tree));
  const Examples examples = MakeExamples(sentences, vocabulary);
  EXPECT_EQ(examples.sentences, 2);
  EXPECT_EQ(examples.features.sizes(), (std::vector<int64_t>{2 * 5 + 2 * 1, kFeatures}));
  // det 0, nsubj 1, obj 2, punct 3, root 4.
  EXPECT_TRUE(
      examples.transitions.equal(at::tensor({0, 0, 2, 0, 0, 1, 8, 0, 9, 10, 0, 10}, at::kLong)));
  // A relation that training lacks, and one that it does not have at a root: their arcs are left
  // out.
  const Treebank strange =
      ParseConllu("1\tx\t_\tX\tX\t_\t2\tdep\t_\t_\n2\ty\t_\tX\tX\t_\t0\tobj\t_\t_\n\n", "");
  const std::vector<EncodedSentence> valid = {vocabulary.Encode(strange.trees[0])};
  EXPECT_TRUE(MakeExamples(valid, vocabulary).transitions.equal(at::tensor({0, 0}, at::kLong)));
}

class ParserTest : public TaskTest<MakeParser> {
 protected:
  std::unique_ptr<Dataset> Load(const std::string& train, const std::string& held_out) {
    for (const auto& [name, text] :
         {std::pair("train.conllu", train), {"dev.conllu", held_out}, {"test.conllu", held_out}}) {
      WriteFile(folder / name, text);
    }
    return task->Load(Smoke(), folder.path());
  }

  TestFolder folder;
};

TEST_F(ParserTest, ReportsLeftOutTrees) {
  const auto data = Load(kAnna + kSees + kCrossing, kAnna + kCrossing);
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 12}, {"valid", 10}, {"test", 10}}));
  EXPECT_THAT(data->about.description, HasSubstr("3 training, 2 validation and 2 test sentences"));
  EXPECT_THAT(data->about.description,
              HasSubstr("1 training sentences that are not projective are left out of training, "
                        "and 1 of the validation loss"));
  EXPECT_THROW(task->Check(Smoke(), *data), UsageError);  // batches of 64
  EXPECT_THROW(Load(kCrossing, kAnna), DataError);
  EXPECT_THROW(Load(kAnna, kCrossing), DataError);
  EXPECT_THROW(Make(*data, {{"norm", "batch"}, {"batch_size", "1"}}), UsageError);
}

TEST_F(ParserTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  Values values = experiment->Evaluate();
  values.merge(experiment->Test());
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    names.push_back(name);
    EXPECT_GE(value, 0) << name;
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("valid_loss", "valid_uas", "valid_las", "test_uas", "test_las"));
  // 13 relations between words: at most 27 feasible transitions, and small random logits.
  EXPECT_LT(values["valid_loss"], std::log(27) + 0.3);
  EXPECT_LE(values["valid_las"], values["valid_uas"]);
}

TEST_F(ParserTest, StartsEveryNormFromTheSameWeights) {
  const auto data = task->Load(Smoke(), {});
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : NormNames()) {
    const auto experiment = Make(*data, {{"norm", norm}});
    std::map<std::string, at::Tensor> now;
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().find("norm") == std::string::npos) now[item.key()] = item.value();
    }
    // The default generator is in the same state: the same dropout masks follow.
    now["next"] = at::rand({4});
    ASSERT_EQ(now.size(), 3u + 2u + 2u + 1u);
    if (first.empty()) first = now;
    for (const auto& [name, tensor] : now) EXPECT_TRUE(tensor.equal(first[name])) << norm << name;
  }
}

TEST_F(ParserTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : NormsToTrain(NormNames())) {
    const Settings settings = Smoke({{"norm", norm}, {"lr", "0.01"}});
    at::manual_seed(1);
    const auto experiment = task->Make(settings, *data);
    TrainEpochs(*task, *experiment, settings, 3);
    at::NoGradGuard no_grad;
    // Far above random choices among feasible transitions, about a quarter.
    EXPECT_GT(experiment->Evaluate().at("valid_uas"), 0.6) << norm;
  }
}

TEST_F(ParserTest, LearnsWithEveryActivation) {
  const auto data = task->Load(Smoke(), {});
  const at::Tensor cases = at::arange(64);
  for (const char* activation : {"relu", "cube", "tanh"}) {
    const Settings settings =
        Smoke({{"activation", activation}, {"norm", "layer"}, {"lr", "0.01"}});
    at::manual_seed(1);
    const auto experiment = task->Make(settings, *data);
    const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
    const double before = UpdateWeights(*experiment, *optimizer, {&cases, 1}).loss;
    for (int i = 0; i < 40; ++i) UpdateWeights(*experiment, *optimizer, {&cases, 1});
    EXPECT_LT(UpdateWeights(*experiment, *optimizer, {&cases, 1}).loss, before / 2) << activation;
  }
}

TEST_F(ParserTest, ResumesExactly) {
  for (const char* norm : {"none", "layer", "batch"}) ExpectExactResume(*task, {{"norm", norm}});
}

// The paper's sizes, on synthetic trees.
TEST_F(ParserTest, TrainsThePapersModel) {
  const Settings settings = Chosen("paper", {{"sentences", "300"}, {"norm", "ada"}});
  const auto data = task->Load(settings, {});
  task->Check(settings, *data);
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
  at::Generator order = at::detail::createCPUGenerator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  double first = 0, last = 0;
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor cases = plan.batch(b);
    last = UpdateWeights(*experiment, *optimizer, {&cases, 1}).loss;
    if (b == 0) first = last;
  }
  EXPECT_LT(last, first);
}

TEST_F(ParserTest, LearnsFromTheRealTreebank) {
  const std::optional<fs::path> path = DataFolder("");
  if (!path || !fs::exists(*path / "ud_ewt")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with ud_ewt";
  }
  const Settings settings = Smoke({{"sentences", "500"}, {"norm", "layer"}, {"lr", "0.01"}});
  const auto data = task->Load(settings, path);
  EXPECT_EQ(data->about.name, "ud_ewt");
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  TrainEpochs(*task, *experiment, settings, 1);
  at::NoGradGuard no_grad;
  EXPECT_GT(experiment->Evaluate().at("valid_uas"), 0.5);
}

}  // namespace
}  // namespace planish::lab
