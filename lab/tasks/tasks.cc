#include "lab/tasks/tasks.h"

#include "lab/tasks/attentive-reader/attentive_reader.h"
#include "lab/tasks/char-lm/char_lm.h"
#include "lab/tasks/convnet/convnet.h"
#include "lab/tasks/draw/draw.h"
#include "lab/tasks/enwik8/enwik8.h"
#include "lab/tasks/handwriting/handwriting.h"
#include "lab/tasks/images/images.h"
#include "lab/tasks/mnist-cnn/mnist_cnn.h"
#include "lab/tasks/mt/mt.h"
#include "lab/tasks/online-ln/online_ln.h"
#include "lab/tasks/order-embedding/order_embedding.h"
#include "lab/tasks/parser/parser.h"
#include "lab/tasks/pi-mnist/pi_mnist.h"
#include "lab/tasks/rt/rt.h"
#include "lab/tasks/sentences/sentences.h"
#include "lab/tasks/skip-thoughts/skip_thoughts.h"
#include "lab/tasks/sst5/sst5.h"

namespace planish::lab {

const std::vector<std::unique_ptr<Task>>& Tasks() {
  static const std::vector<std::unique_ptr<Task>> tasks = [] {
    std::vector<std::unique_ptr<Task>> all;
    all.push_back(MakePiMnist());
    all.push_back(MakeCharLm());
    all.push_back(MakeMt());
    all.push_back(MakeEnwik8());
    all.push_back(MakeRt());
    all.push_back(MakeSst5());
    all.push_back(MakeSentencesTask());
    all.push_back(MakeMnistCnn());
    all.push_back(MakeImages());
    all.push_back(MakeParser());
    all.push_back(MakeOrderEmbedding());
    all.push_back(MakeHandwriting());
    all.push_back(MakeDraw());
    all.push_back(MakeConvNet());
    all.push_back(MakeOnlineLn());
    all.push_back(MakeAttentiveReader());
    all.push_back(MakeSkipThoughts());
    return all;
  }();
  return tasks;
}

}  // namespace planish::lab
