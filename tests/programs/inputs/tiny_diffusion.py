"""A Stable Diffusion with random weights and a tokenizer of single letters, as save_pretrained
leaves them."""

import json
import pathlib
import sys

import torch
from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tokenizer(folder):
    folder.mkdir()
    words = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{one}</w>" for one in LETTERS)]
    vocabulary = {word: number for number, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer.from_pretrained(folder, model_max_length=77)


def main():
    torch.manual_seed(0)
    out = pathlib.Path(sys.argv[1])
    text = CLIPTextConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                          num_attention_heads=4, bos_token_id=0, eos_token_id=1, pad_token_id=1)
    StableDiffusionPipeline(
        vae=AutoencoderKL(
            block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=32),
        text_encoder=CLIPTextModel(text), tokenizer=tokenizer(out / "letters"),
        unet=UNet2DConditionModel(
            sample_size=32, block_out_channels=(32, 64), cross_attention_dim=64,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), norm_num_groups=32),
        scheduler=DDPMScheduler(), safety_checker=None, feature_extractor=None,
        image_encoder=None).save_pretrained(out)


main()
