#include "lab/data/images.h"

#include <initializer_list>

#include "lab/data/idx.h"
#include "lab/data/sha256.h"

namespace planish::lab {

namespace {

void AddHeader(Sha256& sha, std::initializer_list<int64_t> words) {
  for (const int64_t word : words) {
    const uint8_t bytes[] = {static_cast<uint8_t>(word >> 24), static_cast<uint8_t>(word >> 16),
                             static_cast<uint8_t>(word >> 8), static_cast<uint8_t>(word)};
    sha.Update(bytes);
  }
}

}  // namespace

std::string HashImages(const Images& train, const Images& test) {
  Sha256 sha;
  for (const Images* images : {&train, &test}) {
    AddHeader(sha, {kIdxImagesMagic, images->count, images->height, images->width});
    sha.Update(images->pixels);
    AddHeader(sha, {kIdxLabelsMagic, images->count});
    sha.Update(images->labels);
  }
  return sha.Hex();
}

}  // namespace planish::lab
