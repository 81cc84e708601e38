#include "lab/data/images.h"

#include "lab/data/idx_files.h"
#include "lab/data/sha256.h"

namespace planish::lab {

std::string HashImages(const Images& train, const Images& test) {
  Sha256 sha;
  for (const Images* images : {&train, &test}) {
    AddIdxHeader(sha, {kIdxImagesMagic, images->count, images->height, images->width});
    sha.Update(images->pixels);
    AddIdxHeader(sha, {kIdxLabelsMagic, images->count});
    sha.Update(images->labels);
  }
  return sha.Hex();
}

}  // namespace planish::lab
