#include "lab/tasks/images/image_files.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/base/lower_case.h"
#include "lab/data/file_content.h"
#include "lab/data/idx_files.h"
#include "lab/data/jpeg_reader.h"
#include "lab/data/lines.h"
#include "lab/data/npy.h"
#include "lab/data/png_reader.h"
#include "lab/data/sha256.h"
#include "lab/data/zip.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Endings of other image formats, which are refused in the folder of a class.
constexpr std::string_view kOtherFormats[] = {".gif", ".bmp", ".webp", ".tif",  ".tiff",
                                              ".pgm", ".ppm", ".svg",  ".heic", ".avif"};

constexpr std::string_view kIdxImages = "images-idx3-ubyte", kIdxLabels = "labels-idx1-ubyte";

// Names of arrays of images and labels, of npy files before .npy and of keys of npz files; {} is
// the name of a set.
struct ArrayNames {
  std::string_view images, labels;
};
constexpr ArrayNames kArrayNames[] = {{"{}_images", "{}_labels"},
                                      {"{}-images", "{}-labels"},
                                      {"images_{}", "labels_{}"},
                                      {"x_{}", "y_{}"},
                                      {"X_{}", "y_{}"},
                                      {"{}_x", "{}_y"},
                                      {"{}_X", "{}_y"}};
constexpr ArrayNames kArrayNamesOfAll[] = {{"images", "labels"}, {"x", "y"}, {"X", "y"}};
constexpr std::string_view kSetNames[] = {"train", "training", "valid", "validation",
                                          "val",   "dev",      "test",  "t10k"};

// Image of the files.
struct LabelledImage {
  std::string_view label;
  Role role = kTrain;
  std::vector<uint8_t> pixels;
};

std::string SizeText(const ImageShape& shape) {
  return fmt::format("{} x {}", shape.height, shape.width);
}

// Set that a part of a file's name stands for.
std::optional<Role> RoleOfPart(std::string_view name) {
  return name == "t10k" ? std::optional(kTest) : RoleOf(name);
}

// Returns the entries of a folder that are not hidden, in the order of their names.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error) FailToRead(folder, error.message());
  for (const fs::directory_iterator end; entry != end; entry.increment(error)) {
    if (error) FailToRead(folder, error.message());
    const std::string name = entry->path().filename().string();
    // Archives of macOS add the folder __MACOSX.
    if (!name.starts_with('.') && name != "__MACOSX") entries.push_back(entry->path());
  }
  std::ranges::sort(entries);
  return entries;
}

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders = EntriesOf(folder);
  std::erase_if(folders, [](const fs::path& entry) {
    std::error_code error;
    return !fs::is_directory(entry, error);
  });
  return folders;
}

bool IsPng(const fs::path& file) { return LowerCase(file.extension().string()) == ".png"; }

bool IsJpeg(const fs::path& file) {
  const std::string ending = LowerCase(file.extension().string());
  return ending == ".jpg" || ending == ".jpeg";
}

bool IsImage(const fs::path& file) { return IsPng(file) || IsJpeg(file); }

bool HasImages(const fs::path& folder) { return std::ranges::any_of(EntriesOf(folder), IsImage); }

bool HasClassFolders(const fs::path& folder) {
  return std::ranges::any_of(FoldersIn(folder), HasImages);
}

// Files of images and labels of a set, or arrays of an npz file: its path, a slash and the member.
struct FilePair {
  fs::path images, labels;
};
using FilePairs = std::map<Role, FilePair>;

void AddPair(const FilePair& pair, Role role, FilePairs* pairs) {
  const auto [at, is_new] = pairs->emplace(role, pair);
  if (!is_new) {
    FailToRead(pair.images, fmt::format("{} is of the same set",
                                        Escaped(at->second.images.filename().string())));
  }
}

FilePairs IdxPairsIn(const fs::path& folder) {
  FilePairs pairs;
  for (const fs::path& entry : EntriesOf(folder)) {
    std::string name = entry.filename().string();
    const bool packed = name.ends_with(".gz");
    if (packed) name.resize(name.size() - 3);
    std::error_code error;
    if (!name.ends_with(kIdxImages) || (packed && fs::exists(folder / name, error))) continue;
    const std::string prefix = name.substr(0, name.size() - kIdxImages.size());
    std::string_view part = prefix;
    while (part.ends_with('-') || part.ends_with('_') || part.ends_with('.')) part.remove_suffix(1);
    part.remove_prefix(part.find_last_of("-_.") + 1);  // npos + 1 is 0
    const std::optional<Role> role = part.empty() ? std::optional(kTrain) : RoleOfPart(part);
    if (!role) {
      FailToRead(entry, fmt::format("its name does not say its set: {} was expected before {}",
                                    fmt::join(kSetNames, ", "), kIdxImages));
    }
    AddPair({entry, NeedFile(folder, prefix + std::string(kIdxLabels))}, *role, &pairs);
  }
  return pairs;
}

// Calls add(names of images and labels with .npy, role) for the names of sets. If none of them is
// found (add returns true), calls it for those without a set, which are of `role`.
template <class Add>
void AddArrayPairs(Role role, const Add& add) {
  bool found = false;
  for (const std::string_view set : kSetNames) {
    for (const ArrayNames& names : kArrayNames) {
      found |= add(fmt::format(fmt::runtime(names.images), set) + ".npy",
                   fmt::format(fmt::runtime(names.labels), set) + ".npy", *RoleOfPart(set));
    }
  }
  if (found) return;
  for (const ArrayNames& names : kArrayNamesOfAll) {
    add(fmt::format("{}.npy", names.images), fmt::format("{}.npy", names.labels), role);
  }
}

FilePairs NpyPairsIn(const fs::path& folder) {
  FilePairs pairs;
  AddArrayPairs(kTrain, [&](const std::string& images, const std::string& labels, Role role) {
    const auto file = FindFile(folder, images);
    if (file) AddPair({*file, NeedFile(folder, labels)}, role, &pairs);
    return file.has_value();
  });
  return pairs;
}

// Returns the keys of an npz file, quoted.
std::string KeysOf(const ZipArchive& npz) {
  constexpr size_t kMaxShown = 20;
  std::vector<std::string> keys;
  for (const auto& [name, member] : npz.members()) {
    if (keys.size() == kMaxShown) {
      keys.emplace_back("...");
      break;
    }
    keys.push_back(Quoted(name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name));
  }
  return keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ", "));
}

// Adds the arrays of an npz file. Those without the name of a set are of `role`.
void AddNpzPairs(const fs::path& file, Role role, FilePairs* pairs) {
  const ZipArchive npz(file);
  const size_t before = pairs->size();
  AddArrayPairs(role, [&](const std::string& images, const std::string& labels, Role of_names) {
    if (!npz.members().contains(images)) return false;
    if (!npz.members().contains(labels)) {
      FailToRead(file, fmt::format("it has {} but no {}; its keys are {}",
                                   fs::path(images).stem().string(),
                                   fs::path(labels).stem().string(), KeysOf(npz)));
    }
    AddPair({file / images, file / labels}, of_names, pairs);
    return true;
  });
  if (pairs->size() == before) {
    FailToRead(file, fmt::format("it has no arrays of images and labels, such as x_train and "
                                 "y_train, or images and labels; its keys are {}",
                                 KeysOf(npz)));
  }
}

// An npz file whose arrays do not name a set is of the set that its own name says.
FilePairs NpzPairsIn(const fs::path& folder) {
  FilePairs pairs;
  for (const fs::path& entry : EntriesOf(folder)) {
    if (IsNpz(entry)) {
      AddNpzPairs(entry, RoleOfPart(entry.stem().string()).value_or(kTrain), &pairs);
    }
  }
  return pairs;
}

// Reader of all images of a folder.
class ImageReader {
 public:
  explicit ImageReader(const ImageFiles& options) : options_(options) {}

  void ReadClassFolders(const fs::path& folder, Role role) {
    for (const fs::path& of_class : FoldersIn(folder)) {
      const std::string name = of_class.filename().string();
      if (FindInvalidUtf8(name)) FailToRead(of_class, "the name of a class must be UTF-8");
      const std::string_view label = *labels_.insert(name).first;
      bool found = false;
      for (const fs::path& file : EntriesOf(of_class)) {
        std::error_code error;
        if (fs::is_directory(file, error)) {
          FailToRead(file, "it is a folder within the folder of a class, which has only images");
        }
        const std::string ending = LowerCase(file.extension().string());
        if (std::ranges::find(kOtherFormats, ending) != std::end(kOtherFormats)) {
          FailToRead(file, "only PNG and JPEG images are read: convert it first");
        }
        if (!IsImage(file)) {
          ++others_;
          continue;
        }
        found = true;
        ImagePixels image = IsPng(file) ? ReadPng(file) : ReadJpeg(file);
        Add(file, image.shape, std::move(image.pixels), label, role);
        origins_.push_back(file);
      }
      if (!found) {
        FailToRead(of_class,
                   "it has no PNG or JPEG files; each folder here must be that of a class");
      }
    }
  }

  void ReadIdxPair(const FilePair& files, Role role) {
    const IdxImages images = ReadIdxImagesOfAnySize(files.images);
    const std::vector<uint8_t> labels = ReadIdxLabels(files.labels);
    AddArrays(files, {images.height, images.width, 1}, images.count, images.pixels,
              std::vector<int64_t>(labels.begin(), labels.end()), role);
  }

  void ReadNpyPair(const FilePair& files, Role role) {
    const NpyElements<uint8_t> images = ReadNpyPixels(files.images);
    AddNpyArrays(files, images, ReadNpyIntegers(files.labels), role);
  }

  void ReadNpzPair(const FilePair& files, Role role) {
    const ZipArchive npz(files.images.parent_path());
    const auto open = [&](const fs::path& array) { return npz.Open(array.filename().string()); };
    const NpyElements<uint8_t> images = ReadNpyPixels(*open(files.images));
    AddNpyArrays(files, images, ReadNpyIntegers(*open(files.labels)), role);
  }

  void AddNpyArrays(const FilePair& files, const NpyElements<uint8_t>& images,
                    const NpyElements<int64_t>& labels, Role role) {
    const std::vector<int64_t>& sizes = images.shape;
    const bool has_channels = sizes.size() == 4;
    if ((sizes.size() != 3 && !has_channels) || (has_channels && sizes[3] != 1 && sizes[3] != 3)) {
      FailToRead(files.images,
                 fmt::format("its shape is ({}); (images, height, width), or that with 1 or 3 "
                             "channels behind, was expected",
                             fmt::join(sizes, ", ")));
    }
    const bool is_column = labels.shape.size() == 2 && labels.shape[1] == 1;
    if (labels.shape.size() != 1 && !is_column) {
      FailToRead(files.labels, fmt::format("its shape is ({}); (images) was expected",
                                           fmt::join(labels.shape, ", ")));
    }
    for (const int64_t side : {sizes[1], sizes[2]}) {
      if (side < 1 || side > kMaxImageSide) {
        FailToRead(files.images,
                   fmt::format("its images have {} x {} pixels; sides from 1 to {} are allowed",
                               sizes[1], sizes[2], kMaxImageSide));
      }
    }
    AddArrays(files, {sizes[1], sizes[2], has_channels ? sizes[3] : 1}, sizes[0], images.values,
              labels.values, role);
  }

  // Returns the images as cases. `path` names them in errors.
  std::unique_ptr<DigitCases> Finish(const fs::path& path, const std::string& kind) {
    if (images_.empty()) FailToRead(path, "it has no images");
    std::vector<std::string_view> labels;
    std::vector<Role> roles;
    for (const LabelledImage& image : images_) {
      labels.push_back(image.label);
      roles.push_back(image.role);
    }
    const Classes classes = NumberClasses(labels);
    CheckClasses(path, classes);
    SplitOptions sets = options_.sets;
    sets.shuffle = true;  // files are in the order of classes
    const ClassSplit split = SplitByClass(sets, classes, roles);
    if (split.untrained) {
      FailToRead(OriginOf(*split.untrained), fmt::format("no training image has the class {}",
                                                         Quoted(images_[*split.untrained].label)));
    }
    auto data = std::make_unique<DigitCases>();
    ChooseColors();
    data->shape = shape_;
    data->classes = std::ssize(classes.classes);
    const std::string sha256 = Hash();
    data->train = TensorsOf(split.cases[kTrain], classes);
    data->valid = TensorsOf(split.cases[kValid], classes);
    data->test = TensorsOf(split.cases[kTest], classes);
    const bool has_sets = std::ranges::any_of(roles, [](Role role) { return role != kTrain; });
    std::string by = has_sets ? fmt::format("sets by {}", kind) : "";
    if (!split.description.empty()) by += (by.empty() ? "" : ", ") + split.description;
    data->about.name = fs::absolute(path).lexically_normal().filename().string();
    if (data->about.name.empty()) {  // a path that ends in a separator
      data->about.name = fs::absolute(path).lexically_normal().parent_path().filename().string();
    }
    data->about.source = "files";
    data->about.sha256 = sha256;
    data->about.sizes = {{"train", data->train.x.size(0)},
                         {"valid", data->valid.x.size(0)},
                         {"test", data->test.x.size(0)}};
    data->about.description =
        fmt::format("{} {} images of {} pixels read from {}; {}; {}",
                    FormatInteger(std::ssize(images_)), shape_.channels == 1 ? "grey" : "color",
                    SizeText(shape_), path.string(), classes.Text(), by);
    if (converted_ > 0) {
      data->about.description += fmt::format("; {} converted to {}", Count(converted_, "image"),
                                             shape_.channels == 1 ? "grey" : "color");
    }
    if (others_ > 0) {
      data->about.description += fmt::format("; {} left out", Count(others_, "other file"));
    }
    return data;
  }

 private:
  // Adds an image. All must have the height and width of the first.
  void Add(const fs::path& file, const ImageShape& shape, std::vector<uint8_t> pixels,
           std::string_view label, Role role) {
    if (images_.empty()) {
      shape_ = shape;
      first_ = file;
    }
    if (shape.height != shape_.height || shape.width != shape_.width) {
      FailToRead(file, fmt::format("it has {} pixels, but {} has {}: scale all to one size first",
                                   SizeText(shape), Escaped(first_.string()), SizeText(shape_)));
    }
    images_.push_back({label, role, std::move(pixels)});
  }

  void AddArrays(const FilePair& files, const ImageShape& shape, int64_t count,
                 const std::vector<uint8_t>& pixels, const std::vector<int64_t>& labels,
                 Role role) {
    if (std::ssize(labels) != count) {
      FailToRead(files.labels,
                 fmt::format("it has {} for the {} of {}", Count(std::ssize(labels), "label"),
                             Count(count, "image"), Escaped(files.images.filename().string())));
    }
    const auto size = static_cast<size_t>(shape.values());
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto begin = pixels.begin() + static_cast<std::ptrdiff_t>(i * size);
      Add(files.images, shape, {begin, begin + static_cast<std::ptrdiff_t>(size)},
          *labels_.insert(std::to_string(labels[i])).first, role);
      origins_.push_back(files.labels);
    }
  }

  const fs::path& OriginOf(size_t image) const { return origins_[image]; }

  void CheckClasses(const fs::path& path, const Classes& classes) const {
    if (const Class* once = classes.Single()) {
      FailToRead(OriginOf(once->first),
                 fmt::format("only one image has the class {}; each class must have two or more",
                             Quoted(once->label)));
    }
    if (classes.classes.size() == 1) {
      FailToRead(path, fmt::format("all images have the class {}; two classes or more are needed",
                                   Quoted(classes.classes.front().label)));
    }
  }

  // Gives all images the same number of channels.
  void ChooseColors() {
    const auto pixels = static_cast<size_t>(shape_.height * shape_.width);
    bool color = options_.colors == Colors::kColor;
    if (options_.colors == Colors::kAuto) {
      color = std::ranges::any_of(
          images_, [&](const LabelledImage& image) { return image.pixels.size() != pixels; });
    }
    shape_.channels = color ? 3 : 1;
    for (LabelledImage& image : images_) {
      const bool has_color = image.pixels.size() != pixels;
      if (has_color == color) continue;
      ++converted_;
      if (color) {
        std::vector<uint8_t> rgb;
        rgb.reserve(3 * pixels);
        for (const uint8_t grey : image.pixels) rgb.insert(rgb.end(), 3, grey);
        image.pixels = std::move(rgb);
      } else {
        image.pixels = GreyOf(image.pixels);
      }
    }
  }

  // Returns the checksum of the size, and of set, class and pixels of each image in order.
  std::string Hash() const {
    Sha256 sha;
    const auto add = [&](const std::string& text) {
      sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    };
    add(fmt::format("{} {}\n", SizeText(shape_), shape_.channels));
    for (const LabelledImage& image : images_) {
      add(fmt::format("{} {}\n", static_cast<size_t>(image.role), image.label));
      sha.Update(image.pixels);
    }
    return sha.Hex();
  }

  Cases TensorsOf(const std::vector<size_t>& cases, const Classes& classes) const {
    const auto count = std::ssize(cases);
    Cases tensors{at::empty({count, shape_.values()}, at::kFloat), at::empty({count}, at::kLong)};
    auto* x = tensors.x.data_ptr<float>();
    auto* labels = tensors.labels.data_ptr<int64_t>();
    for (const size_t i : cases) {
      for (const uint8_t value : images_[i].pixels) *x++ = static_cast<float>(value) / 255;
      *labels++ = classes.of_case[i];
    }
    return tensors;
  }

  const ImageFiles& options_;
  ImageShape shape_;
  fs::path first_;  // of the first image
  std::vector<LabelledImage> images_;
  std::vector<fs::path> origins_;  // file that gives each image's class
  std::set<std::string> labels_;
  int64_t others_ = 0;     // files of classes that are not images
  int64_t converted_ = 0;  // images whose number of channels was changed
};

// Reads the images of `pairs`, the sets of a folder or npz file.
std::unique_ptr<DigitCases> ReadPairs(const fs::path& path, const FilePairs& pairs,
                                      const ImageFiles& options,
                                      void (ImageReader::*read)(const FilePair&, Role)) {
  if (!pairs.contains(kTrain)) {
    FailToRead(pairs.begin()->second.images, "there are no training images beside it");
  }
  ImageReader reader(options);
  for (const auto& [role, pair] : pairs) (reader.*read)(pair, role);
  return reader.Finish(path, "files");
}

// Reads the images of a folder. Returns null if it has none.
std::unique_ptr<DigitCases> ReadFolder(const fs::path& folder, const ImageFiles& options) {
  ImageReader reader(options);
  std::map<Role, fs::path> sets;
  std::vector<fs::path> more;  // folders of sets that have one already
  for (const fs::path& below : FoldersIn(folder)) {
    const std::optional<Role> role = RoleOf(below.filename().string());
    if (role && !sets.emplace(*role, below).second) more.push_back(below);
  }
  if (sets.contains(kTrain) && HasClassFolders(sets[kTrain])) {
    if (!more.empty()) {
      const fs::path& other = sets[*RoleOf(more.front().filename().string())];
      FailToRead(more.front(), fmt::format("{} is of the same set", other.filename().string()));
    }
    for (const auto& [role, set] : sets) reader.ReadClassFolders(set, role);
    return reader.Finish(folder, "folders");
  }
  if (HasClassFolders(folder)) {
    reader.ReadClassFolders(folder, kTrain);
    return reader.Finish(folder, "folders");
  }
  if (const FilePairs idx = IdxPairsIn(folder); !idx.empty()) {
    return ReadPairs(folder, idx, options, &ImageReader::ReadIdxPair);
  }
  if (const FilePairs npy = NpyPairsIn(folder); !npy.empty()) {
    return ReadPairs(folder, npy, options, &ImageReader::ReadNpyPair);
  }
  if (const FilePairs npz = NpzPairsIn(folder); !npz.empty()) {
    return ReadPairs(folder, npz, options, &ImageReader::ReadNpzPair);
  }
  return nullptr;
}

}  // namespace

bool IsNpz(const fs::path& file) { return LowerCase(file.extension().string()) == ".npz"; }

std::unique_ptr<DigitCases> ReadImageFiles(const fs::path& path, const ImageFiles& options) {
  return ReadInMemory(path, [&] {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (IsNpz(path)) {
        FilePairs pairs;
        AddNpzPairs(path, kTrain, &pairs);
        return ReadPairs(path, pairs, options, &ImageReader::ReadNpzPair);
      }
      FileContent check(path);  // throws for archives, pipes and missing files
      FailToRead(path, "it is not a folder with images");
    }
    for (const fs::path& folder : {path, path / "images"}) {
      if (!fs::is_directory(folder, error)) continue;
      if (auto data = ReadFolder(folder, options)) return data;
    }
    throw DataError(
        fmt::format("{} has no images, itself or in a folder images: folders of PNG or JPEG files, "
                    "one for each class, or files ...{} or ..._images.npy with their labels, or "
                    "npz files",
                    Escaped(path.string()), kIdxImages));
  });
}

}  // namespace planish::lab
