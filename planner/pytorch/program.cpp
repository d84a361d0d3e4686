#include "planner/pytorch/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/check.h"
#include "models/families.h"
#include "planner/config/loss_scale.h"

namespace shardlens::planner {

namespace {

struct Word {
  std::string_view word;
  void (*set)(PytorchOptions&);
};

// The first word of each group is what a program does by default.
constexpr std::array kWords = {
    Word{"foreach", [](PytorchOptions& it) { it.loop = PytorchLoop::foreach; }},
    Word{"fused", [](PytorchOptions& it) { it.loop = PytorchLoop::fused; }},
    Word{"single", [](PytorchOptions& it) { it.loop = PytorchLoop::single; }},
    Word{"own-groups", [](PytorchOptions& it) { it.own_groups = true; }},
    Word{"zero-grad=after", [](PytorchOptions& it) { it.zero_grad = PytorchZeroGrad::after; }},
    Word{"zero-grad=before", [](PytorchOptions& it) { it.zero_grad = PytorchZeroGrad::before; }},
    Word{"zero-grad=keep", [](PytorchOptions& it) { it.zero_grad = PytorchZeroGrad::keep; }},
    Word{"logits=computed", [](PytorchOptions& it) { it.writing.fp32_logits = false; }},
    Word{"logits=fp32", [](PytorchOptions& it) { it.writing.fp32_logits = true; }},
    Word{"keep-logits", [](PytorchOptions& it) { it.writing.keeps_logits = true; }},
    Word{"loss=fp32", [](PytorchOptions& it) { it.writing.own_loss_type = false; }},
    Word{"loss=own", [](PytorchOptions& it) { it.writing.own_loss_type = true; }},
    Word{"attention=grouped", [](PytorchOptions& it) { it.writing.repeats_kv = false; }},
    Word{"attention=repeat-kv", [](PytorchOptions& it) { it.writing.repeats_kv = true; }},
    Word{"norm=module", [](PytorchOptions& it) { it.writing.norms_by_hand = false; }},
    Word{"norm=fp32", [](PytorchOptions& it) { it.writing.norms_by_hand = true; }},
};

constexpr std::string_view kForwardPrefetch = "forward-prefetch=";
constexpr std::string_view kBackwardPrefetch = "backward-prefetch=";

int prefetch_of(std::string_view word, std::string_view key) {
  const std::string number(word.substr(key.size()));
  constexpr size_t kMostDigits = 3;
  const bool is_number = !number.empty() && number.size() <= kMostDigits &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) return std::stoi(number);
  throw std::invalid_argument(fmt::format("--pytorch {}: not a number; give 1 or more", word));
}

void read_word(PytorchOptions& options, std::string_view word) {
  if (word.starts_with(kForwardPrefetch)) {
    options.forward_prefetch = prefetch_of(word, kForwardPrefetch);
    return;
  }
  if (word.starts_with(kBackwardPrefetch)) {
    options.backward_prefetch = prefetch_of(word, kBackwardPrefetch);
    return;
  }
  const auto found = std::ranges::find(kWords, word, &Word::word);
  if (found == kWords.end()) {
    throw std::invalid_argument(
        fmt::format("--pytorch {}: not known; give {}", word, pytorch_words()));
  }
  found->set(options);
}

// ---- the program in words -----------------------------------------------------------------------

std::string model_of(const models::ModelSpec& spec) {
  if (spec.is<models::LlamaSizes>()) {
    const bool is_tied = spec.as<models::LlamaSizes>().tied;
    return fmt::format("a Llama as torchtitan writes it{}",
                       is_tied ? ", head tied to the embedding" : "");
  }
  if (spec.is<models::VitSizes>()) return "torchvision's VisionTransformer, without cuDNN";
  if (spec.is<models::TransformerSizes>()) {
    return "the transformer of \"PyTorch FSDP2: A Practical Guide\"";
  }
  unreachable("a model whose Python code nobody knows");
}

std::string attention_of(const PytorchVariant& writing) {
  return writing.repeats_kv
             ? "scaled_dot_product_attention, key heads repeated for every query head"
             : "scaled_dot_product_attention(enable_gqa=True); in fp32 key heads "
               "are repeated";
}

std::string logits_of(const PytorchVariant& writing) {
  const std::string cast =
      writing.fp32_logits ? "cast to fp32 by the model's forward" : "as the head computes them";
  return cast + (writing.keeps_logits ? ", kept by the loop until the next forward"
                                      : ", freed after the loss");
}

std::string loss_of(const models::ModelSpec& spec, const PytorchVariant& writing) {
  if (spec.loss == models::LossKind::sum) return "logits.sum(dtype=torch.float32)";
  return writing.own_loss_type ? "cross entropy in the logits' dtype" : "cross entropy in fp32";
}

std::string optimizer_text(const Config& config, PytorchLoop loop) {
  const char* const how = loop == PytorchLoop::fused     ? "fused=True"
                          : loop == PytorchLoop::foreach ? "foreach=True, the default"
                                                         : "foreach=False";
  const bool is_adam = config.optimizer == OptimizerKind::adam;
  return fmt::format("{}({})", is_adam ? "Adam" : "AdamW", how);
}

std::string zero_grad_text(PytorchZeroGrad order) {
  if (order == PytorchZeroGrad::after) return "behind the optimizer's step";
  return order == PytorchZeroGrad::before ? "before the forward" : "with set_to_none=False";
}

std::string groups_text(const PytorchOptions& options) {
  return options.own_groups ? "every block, the embedding, the head, then the model"
                            : "every block, then the model";
}

}  // namespace

PytorchOptions read_pytorch_words(std::string_view words) {
  PytorchOptions options;
  while (!words.empty()) {
    const size_t end = std::min(words.find(','), words.size());
    read_word(options, words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return options;
}

std::string pytorch_words() {
  std::string text;
  for (const Word& word : kWords) text += fmt::format("{}, ", word.word);
  return text + fmt::format("{}N or {}N", kForwardPrefetch, kBackwardPrefetch);
}

PytorchRange pytorch_range(const models::ModelSpec& spec) {
  const bool is_llama = spec.is<models::LlamaSizes>();
  return {.least = "loss=own",
          .most = is_llama ? "logits=fp32,keep-logits,attention=repeat-kv,norm=fp32"
                           : "logits=fp32,keep-logits"};
}

std::vector<PytorchHabit> habits_of(const models::ModelSpec& spec, const Config& config,
                                    const PytorchOptions& options) {
  const PytorchVariant& writing = options.writing;
  std::vector<PytorchHabit> habits = {{"model", model_of(spec)}};
  if (spec.is<models::LlamaSizes>()) {
    habits.push_back({"attention", attention_of(writing)});
    habits.push_back({"norm", writing.norms_by_hand ? "RMSNorm by hand, in fp32" : "nn.RMSNorm"});
  }
  habits.push_back({"fully_shard", groups_text(options)});
  habits.push_back({"logits", logits_of(writing)});
  habits.push_back({"loss", loss_of(spec, writing)});
  if (loss_scale_of(config).kind != LossScale::Kind::none) {
    habits.push_back({"loss scale", "GradScaler(), no step is skipped"});
  }
  habits.push_back({"clipping", config.clip_norm > 0 ? "clip_grad_norm_" : "none"});
  habits.push_back({"optimizer", optimizer_text(config, options.loop)});
  habits.push_back({"zero_grad", zero_grad_text(options.zero_grad)});
  return habits;
}

}  // namespace shardlens::planner
