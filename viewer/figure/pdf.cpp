#include "viewer/figure/pdf.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <set>
#include <stdexcept>
#include <vector>

namespace shardlens::viewer {

namespace {

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  const int state =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_DEFAULT_COMPRESSION);
  if (state != Z_OK) throw std::runtime_error("cannot compress the figure: out of memory");
  packed.resize(size);
  return packed;
}

/// The objects of a file. Numbers count from 1.
class Objects {
 public:
  /// Adds an object and returns its number.
  size_t add(std::string text) {
    objects_.push_back(std::move(text));
    return objects_.size();
  }
  size_t add_stream(const std::string& entries, const std::string& bytes) {
    const std::string packed = deflated(bytes);
    return add(fmt::format("<< {} /Filter /FlateDecode /Length {} >>\nstream\n{}\nendstream",
                           entries, packed.size(), packed));
  }
  size_t count() const { return objects_.size(); }
  void set(size_t number, std::string text) { objects_[number - 1] = std::move(text); }

  /// Returns the file; `root` is the number of its catalog.
  std::string file(size_t root) const {
    std::string text = "%PDF-1.4\n%\xE2\xE3\xCF\xD3\n";  // bytes above 127: not a text
    std::vector<size_t> begins;
    for (size_t i = 0; i < objects_.size(); ++i) {
      begins.push_back(text.size());
      text += fmt::format("{} 0 obj\n{}\nendobj\n", i + 1, objects_[i]);
    }
    const size_t table = text.size();
    text += fmt::format("xref\n0 {}\n0000000000 65535 f \n", objects_.size() + 1);
    for (const size_t begin : begins) text += fmt::format("{:010} 00000 n \n", begin);
    return text + fmt::format("trailer\n<< /Size {} /Root {} 0 R >>\nstartxref\n{}\n%%EOF\n",
                              objects_.size() + 1, root, table);
  }

 private:
  std::vector<std::string> objects_;
};

/// Writes the page's content, in pixels of the picture, of which y grows downwards.
class PdfWriter {
 public:
  PdfWriter(Objects& objects, const Outliner& outliner) : objects_(objects), outliner_(outliner) {}

  void operator()(const Fill& item) {
    if (item.box.w <= 0 || item.box.h <= 0) return;
    ink(item.color, "rg");
    outline_of(item.box, item.radius);
    content_ += "f\n";
  }
  void operator()(const Outline& item) {
    ink(item.color, "RG");
    content_ += fmt::format("{:.2f} w ", item.width);
    outline_of(item.box.inset(item.width / 2), item.radius);
    content_ += "S\n";
  }
  void operator()(const Line& item) {
    ink(item.color, "RG");
    content_ += fmt::format("{:.2f} w {:.2f} {:.2f} m {:.2f} {:.2f} l S\n", item.width, item.x0,
                            item.y0, item.x1, item.y1);
  }
  void operator()(const Triangle& item) {
    const auto& p = item.points;
    ink(item.color, "rg");
    content_ += fmt::format("{:.2f} {:.2f} m {:.2f} {:.2f} l {:.2f} {:.2f} l f\n", p[0], p[1], p[2],
                            p[3], p[4], p[5]);
  }
  void operator()(const Text& item) {
    const Path path = outliner_(item);
    if (path.empty()) return;
    ink(item.color, "rg");
    const PathStep* last = nullptr;
    for (const PathStep& step : path) {
      add(step, last);
      last = &step;
    }
    content_ += "f\n";
  }
  void operator()(const PlacedImage& item) {
    alpha(255);
    images_.push_back(add_image(image_at(item)));
    content_ += fmt::format("q {:.2f} 0 0 {:.2f} {:.2f} {:.2f} cm /I{} Do Q\n", item.box.w,
                            -item.box.h, item.box.x, item.box.bottom(), images_.size() - 1);
  }

  const std::string& content() const { return content_; }

  std::string resources() const {
    std::string text = "<< /ExtGState <<";
    for (const int a : alphas_) {
      text += fmt::format(" /A{} << /ca {:.3f} /CA {:.3f} >>", a, a / 255.0, a / 255.0);
    }
    text += " >> /XObject <<";
    for (size_t i = 0; i < images_.size(); ++i) text += fmt::format(" /I{} {} 0 R", i, images_[i]);
    return text + " >> >>";
  }

 private:
  void alpha(int value) {
    alphas_.insert(value);
    content_ += fmt::format("/A{} gs ", value);
  }
  /// Sets the colour by an operator: "rg" to fill, "RG" to draw lines.
  void ink(const Color& color, std::string_view by) {
    alpha(color.a);
    content_ += fmt::format("{:.3f} {:.3f} {:.3f} {} ", color.r / 255.0, color.g / 255.0,
                            color.b / 255.0, by);
  }

  void outline_of(const Box& box, float radius) {
    if (radius <= 0) {
      content_ += fmt::format("{:.2f} {:.2f} {:.2f} {:.2f} re ", box.x, box.y, box.w, box.h);
      return;
    }
    const float r = std::min({radius, box.w / 2, box.h / 2});
    const float c = r * 0.4477F;  // puts a cubic curve's control points on a quarter of a circle
    const float x0 = box.x, y0 = box.y, x1 = box.right(), y1 = box.bottom();
    content_ += fmt::format("{:.2f} {:.2f} m {:.2f} {:.2f} l ", x0 + r, y0, x1 - r, y0);
    curve(x1 - c, y0, x1, y0 + c, x1, y0 + r);
    content_ += fmt::format("{:.2f} {:.2f} l ", x1, y1 - r);
    curve(x1, y1 - c, x1 - c, y1, x1 - r, y1);
    content_ += fmt::format("{:.2f} {:.2f} l ", x0 + r, y1);
    curve(x0 + c, y1, x0, y1 - c, x0, y1 - r);
    content_ += fmt::format("{:.2f} {:.2f} l ", x0, y0 + r);
    curve(x0, y0 + c, x0 + c, y0, x0 + r, y0);
    content_ += "h ";
  }
  void curve(float x1, float y1, float x2, float y2, float x, float y) {
    content_ += fmt::format("{:.2f} {:.2f} {:.2f} {:.2f} {:.2f} {:.2f} c ", x1, y1, x2, y2, x, y);
  }

  void add(const PathStep& step, const PathStep* last) {
    if (step.kind == PathStep::Kind::move) {
      content_ += fmt::format("{}{:.2f} {:.2f} m ", last == nullptr ? "" : "h ", step.x, step.y);
    } else if (step.kind == PathStep::Kind::line || last == nullptr) {
      content_ += fmt::format("{:.2f} {:.2f} l ", step.x, step.y);
    } else {
      // PDF has cubic curves only.
      const auto third = [](float end, float control) { return (end + 2 * control) / 3; };
      curve(third(last->x, step.control_x), third(last->y, step.control_y),
            third(step.x, step.control_x), third(step.y, step.control_y), step.x, step.y);
    }
  }

  /// Adds an image, and its opacity as an image of its own. Returns its number.
  size_t add_image(const Image& image) {
    std::string colors;
    std::string opacity;
    bool is_opaque = true;
    for (const uint32_t pixel : image.pixels) {
      for (const int shift : {0, 8, 16}) colors += static_cast<char>(pixel >> shift & 0xFF);
      opacity += static_cast<char>(pixel >> 24);
      is_opaque = is_opaque && pixel >> 24 == 0xFF;
    }
    const auto entries = [&](std::string_view space) {
      return fmt::format(
          "/Type /XObject /Subtype /Image /Width {} /Height {} /BitsPerComponent 8 /ColorSpace /{}",
          image.width, image.height, space);
    };
    if (is_opaque) return objects_.add_stream(entries("DeviceRGB"), colors);
    const size_t mask = objects_.add_stream(entries("DeviceGray"), opacity);
    return objects_.add_stream(fmt::format("{} /SMask {} 0 R", entries("DeviceRGB"), mask), colors);
  }

  Objects& objects_;
  const Outliner& outliner_;
  std::string content_;
  std::set<int> alphas_;
  std::vector<size_t> images_;  // their numbers
};

}  // namespace

std::string pdf_of(const Picture& picture, const FigureSize& size, const Outliner& outliner) {
  Objects objects;
  const size_t catalog = objects.add("<< /Type /Catalog /Pages 2 0 R >>");
  objects.add("<< /Type /Pages /Kids [3 0 R] /Count 1 >>");
  const size_t page = objects.add("");
  PdfWriter writer(objects, outliner);
  for (const Item& item : picture.items) std::visit(writer, item);
  const std::string scale =
      fmt::format("{:.6f} 0 0 {:.6f} 0 {:.2f} cm\n", size.width / picture.width,
                  -size.height / picture.height, size.height);
  const size_t content = objects.add_stream("", scale + writer.content());
  objects.set(page,
              fmt::format("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {:g} {:g}] /Contents {} 0 R "
                          "/Resources {} >>",
                          size.width, size.height, content, writer.resources()));
  return objects.file(catalog);
}

}  // namespace shardlens::viewer
