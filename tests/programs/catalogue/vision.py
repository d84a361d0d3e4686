"""Programs that train on images: timm, diffusers, open_clip, and PyTorch's own examples."""

from program import Program, Source

TIMM = {"library": "timm", "environment": "vision", "inputs": ("pictures",),
        "source": Source("https://github.com/huggingface/pytorch-image-models",
                         "aa4b5850c1543fa488abf260f18390eda46cf85d")}
TIMM_TRAIN = ("{python}", "{source}/train.py", "--data-dir", "{pictures}", "--num-classes", "2",
              "--batch-size", "8", "--epochs", "1", "--cooldown-epochs", "0", "--warmup-epochs", "0",
              "--workers", "1", "--output", "{work}/out")

DIFFUSERS = {"library": "diffusers", "environment": "vision",
             "variables": {"PYTHONPATH": "{source}/src"},
             "source": Source("https://github.com/huggingface/diffusers",
                              "58eb52c0803ea9af3abec60841c2a093bdf1f951")}
DIFFUSERS_OUT = ("--output_dir", "{work}/out", "--resolution", "64", "--train_batch_size", "2")

OPEN_CLIP = {"library": "open_clip_torch", "environment": "vision", "inputs": ("pictures",),
             "variables": {"PYTHONPATH": "{source}/src"},
             "source": Source("https://github.com/mlfoundations/open_clip",
                              "89fb801f1e6087880e951fc8354b8a2077b79c6d")}
CLIP_TRAIN = ("{python}", "-m", "open_clip_train.main", "--train-data", "{pictures}/captions.csv",
              "--dataset-type", "csv", "--batch-size", "8", "--epochs", "1", "--workers", "1")

EXAMPLES = {"library": "torch", "environment": "vision",
            "source": Source("https://github.com/pytorch/examples",
                             "77f55b912142e11fcfdf5b530231fb9c52f181e8")}
IGNITE = {"library": "pytorch-ignite", "environment": "vision",
          "source": Source("https://github.com/pytorch/ignite",
                           "de08e799cfb55a6cf4aa778575d6bad725385453")}

VISION = {"library": "torchvision", "environment": "torchvision", "inputs": ("scenes",),
          "source": Source("https://github.com/pytorch/vision",
                           "acccf86477759b2d3500f1ae1be065f7b1e409ec")}


def reference(name, part, *arguments):
    """One of torchvision's own training scripts, with random weights."""
    return Program(f"torchvision-{name}", **VISION, command=(
        "{python}", f"{{source}}/references/{part}/train.py", "--epochs", "1", "--workers", "1",
        "--output-dir", "{work}", *arguments))


def with_data(data, place, command):
    """A program that looks for its data in its own place."""
    return ("bash", "-c", f"ln -s {data} {place} && exec {command}")


def on_digits(script, *arguments):
    """An example that reads MNIST beside the folder in which it runs."""
    command = " ".join(("{python}", "{source}/" + script, "--epochs", "1", *arguments))
    return with_data("{digits}", "../data", command)


PROGRAMS = [
    Program("timm-vit", command=(*TIMM_TRAIN, "--model", "vit_small_patch16_224", "--amp"), **TIMM),
    Program("timm-resnet50", command=(*TIMM_TRAIN, "--model", "resnet50", "--channels-last",
                                      "--model-ema", "--mixup", "0.2", "--clip-grad", "1"), **TIMM),
    Program("timm-convnext-bfloat16", command=(*TIMM_TRAIN, "--model", "convnext_atto", "--amp",
                                               "--amp-dtype", "bfloat16", "--opt", "lamb",
                                               "--grad-accum-steps", "2"), **TIMM),
    Program("timm-swin-checkpointed", command=(*TIMM_TRAIN, "--model", "swin_tiny_patch4_window7_224",
                                               "--grad-checkpointing", "--opt", "adamw"), **TIMM),
    Program("timm-muon", command=(*TIMM_TRAIN, "--model", "vit_tiny_patch16_224", "--opt", "muon"),
            **TIMM),
    Program("timm-ddp", command=("{python}", "-m", "torch.distributed.run", "--nproc_per_node", "4", *TIMM_TRAIN[1:],
                                 "--model", "resnet18", "--sync-bn"), **TIMM),
    Program("timm-compiled", command=(*TIMM_TRAIN, "--model", "vit_tiny_patch16_224",
                                      "--torchcompile"), **TIMM),
    Program("timm-cuda-graphs", command=(*TIMM_TRAIN, "--model", "vit_tiny_patch16_224",
                                         "--torchcompile", "--torchcompile-mode",
                                         "reduce-overhead"), **TIMM),
    Program("timm-max-autotune", timeout_s=3000, command=(
        *TIMM_TRAIN, "--model", "vit_tiny_patch16_224", "--torchcompile", "--torchcompile-mode",
        "max-autotune-no-cudagraphs"), **TIMM),
    Program("timm-maxvit", command=(*TIMM_TRAIN, "--model", "maxvit_rmlp_pico_rw_256", "--amp",
                                    "--opt", "adafactor"), **TIMM),
    Program("timm-efficientnet", command=(*TIMM_TRAIN, "--model", "efficientnet_b1", "--amp", "--aa",
                                          "rand-m9-mstd0.5", "--reprob", "0.3", "--bce-loss",
                                          "--drop-path", "0.2", "--opt", "rmsproptf"), **TIMM),
    Program("timm-nfnet", command=(*TIMM_TRAIN, "--model", "dm_nfnet_f0", "--opt", "lion",
                                   "--clip-mode", "agc", "--clip-grad", "0.01"), **TIMM),
    Program("timm-benchmark", command=("{python}", "{source}/benchmark.py", "--model",
                                       "efficientnet_b0", "--bench", "train", "--batch-size", "16",
                                       "--num-bench-iter", "10", "--num-warm-iter", "1", "--amp"),
            **TIMM),
    Program("diffusers-unconditional", inputs=("pictures",), command=(
        "{python}", "{source}/examples/unconditional_image_generation/train_unconditional.py",
        "--train_data_dir", "{pictures}/train", "--num_epochs", "1", "--use_ema",
        "--save_images_epochs", "100", *DIFFUSERS_OUT), **DIFFUSERS),
    Program("diffusers-text-to-image", inputs=("pictures", "tiny_diffusion"), command=(
        "{python}", "{source}/examples/text_to_image/train_text_to_image.py",
        "--pretrained_model_name_or_path", "{tiny_diffusion}", "--train_data_dir", "{pictures}/train",
        "--max_train_steps", "3", "--use_ema", *DIFFUSERS_OUT),
            **DIFFUSERS),
    Program("diffusers-dreambooth-lora", inputs=("pictures", "tiny_diffusion"), command=(
        "{python}", "{source}/examples/dreambooth/train_dreambooth_lora.py",
        "--pretrained_model_name_or_path", "{tiny_diffusion}", "--instance_data_dir",
        "{pictures}/train/dog", "--instance_prompt", "a dog", "--max_train_steps", "3",
        *DIFFUSERS_OUT), **DIFFUSERS),
    Program("diffusers-textual-inversion", inputs=("pictures", "tiny_diffusion"), command=(
        "{python}", "{source}/examples/textual_inversion/textual_inversion.py",
        "--pretrained_model_name_or_path", "{tiny_diffusion}", "--train_data_dir",
        "{pictures}/train/dog", "--placeholder_token", "zz", "--initializer_token", "a",
        "--max_train_steps", "3", "--learnable_property", "object", *DIFFUSERS_OUT), **DIFFUSERS),
    Program("diffusers-text-to-image-lora", inputs=("pictures", "tiny_diffusion"), command=(
        "{python}", "{source}/examples/text_to_image/train_text_to_image_lora.py",
        "--pretrained_model_name_or_path", "{tiny_diffusion}", "--train_data_dir", "{pictures}/train",
        "--max_train_steps", "3", "--mixed_precision", "bf16", *DIFFUSERS_OUT), **DIFFUSERS),
    Program("diffusers-dreambooth", inputs=("pictures", "tiny_diffusion"), command=(
        "{python}", "{source}/examples/dreambooth/train_dreambooth.py",
        "--pretrained_model_name_or_path", "{tiny_diffusion}", "--instance_data_dir",
        "{pictures}/train/dog", "--instance_prompt", "a dog", "--max_train_steps", "3",
        "--gradient_checkpointing", "--train_text_encoder", *DIFFUSERS_OUT), **DIFFUSERS),
    Program("open-clip-vit", command=(*CLIP_TRAIN, "--model", "ViT-S-32", "--precision", "amp"),
            **OPEN_CLIP),
    Program("open-clip-rank", command=("{python}", "-m", "torch.distributed.run", "--nproc_per_node", "4", *CLIP_TRAIN[1:],
                                       "--model", "ViT-S-32", "--local-loss", "--gather-with-grad",
                                       "--grad-checkpointing"), **OPEN_CLIP),
    Program("open-clip-coca", command=(*CLIP_TRAIN, "--model", "coca_base", "--precision", "amp_bf16",
                                       "--batch-size", "2", "--coca-contrastive-loss-weight", "1",
                                       "--coca-caption-loss-weight", "2"), **OPEN_CLIP),
    Program("open-clip-siglip", command=(*CLIP_TRAIN, "--model", "ViT-S-32-alt", "--siglip",
                                         "--accum-freq", "2"), **OPEN_CLIP),
    Program("pytorch-imagenet", inputs=("pictures",), command=(
        "{python}", "{source}/imagenet/main.py", "-a", "resnet50", "-b", "8", "-j", "1", "--epochs",
        "1", "{pictures}"), **EXAMPLES),
    Program("pytorch-dcgan", inputs=("pictures",), command=(
        "{python}", "{source}/dcgan/main.py", "--dataset", "folder", "--dataroot", "{pictures}/train",
        "--batchSize", "16", "--niter", "1", "--accel", "--workers", "1"), **EXAMPLES),
    Program("pytorch-mnist", inputs=("digits",), command=on_digits("mnist/main.py"), **EXAMPLES),
    Program("pytorch-mnist-lstm", inputs=("digits",), command=on_digits("mnist_rnn/main.py", "--accel"),
            **EXAMPLES),
    Program("pytorch-siamese", inputs=("digits",), command=on_digits("siamese_network/main.py"),
            **EXAMPLES),
    Program("pytorch-vae", inputs=("digits",), command=(
        "bash", "-c", "ln -s {digits} ../data && mkdir results && "
        "exec {python} {source}/vae/main.py --epochs 1"), **EXAMPLES),
    Program("pytorch-forward-forward", inputs=("digits",), command=with_data(
        "{digits}", "data", "{python} {source}/mnist_forward_forward/main.py --epochs 2"), **EXAMPLES),
    Program("ignite-mnist", inputs=("digits",), command=with_data(
        "{digits}/MNIST", "MNIST", "{python} {source}/examples/mnist/mnist.py --epochs 1"), **IGNITE),
    Program("ignite-dcgan", inputs=("pictures",), flags=("--steps", "4"), command=(
        "{python}", "{source}/examples/gan/dcgan.py", "--dataset", "folder", "--dataroot",
        "{pictures}/train", "--batch-size", "16", "--epochs", "1", "--workers", "1"), **IGNITE),
    reference("resnet18", "classification", "--data-path", "{scenes}/classes", "--model",
              "resnet18", "--batch-size", "8", "--amp"),
    reference("mobilenet-ema", "classification", "--data-path", "{scenes}/classes", "--model",
              "mobilenet_v3_small", "--batch-size", "8", "--opt", "rmsprop", "--model-ema",
              "--auto-augment", "imagenet", "--mixup-alpha", "0.2"),
    reference("vit", "classification", "--data-path", "{scenes}/classes", "--model",
              "vit_b_32", "--batch-size", "8", "--opt", "adamw", "--clip-grad-norm", "1"),
    reference("faster-rcnn", "detection", "--data-path", "{scenes}/coco", "--model",
              "fasterrcnn_mobilenet_v3_large_320_fpn", "--batch-size", "2"),
    reference("mask-rcnn", "detection", "--data-path", "{scenes}/coco", "--model",
              "maskrcnn_resnet50_fpn", "--batch-size", "2", "--amp"),
    reference("retinanet", "detection", "--data-path", "{scenes}/coco", "--model",
              "retinanet_resnet50_fpn", "--batch-size", "2"),
    reference("fcn", "segmentation", "--data-path", "{scenes}/voc", "--dataset", "voc",
              "--model", "fcn_resnet50", "--batch-size", "2", "--aux-loss"),
    reference("deeplab", "segmentation", "--data-path", "{scenes}/coco", "--dataset",
              "coco", "--model", "deeplabv3_mobilenet_v3_large", "--batch-size", "2"),
    Program("vector-quantize", library="vector-quantize-pytorch", environment="vision",
            inputs=("digits",), variables={"HOME": "{work}"}, source=Source(
                "https://github.com/lucidrains/vector-quantize-pytorch",
                "0d7d1aa83334b6f2f8a40306bece75cdaa13d065"),
            command=("bash", "-c", "mkdir data && ln -s {digits} data/fashion_mnist && "
                     "exec {python} {source}/examples/autoencoder.py --train_iter 4")),
]
