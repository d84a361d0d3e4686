"""A Whisper with random weights, a second of silence, and an ffmpeg that reads it."""

import pathlib
import sys
import wave

import torch
import whisper

FFMPEG = """#!{python}
import sys, wave
with wave.open(sys.argv[sys.argv.index("-i") + 1]) as sound:
    sys.stdout.buffer.write(sound.readframes(sound.getnframes()))
"""


def main():
    out = pathlib.Path(sys.argv[1])
    dims = whisper.ModelDimensions(
        n_mels=80, n_audio_ctx=1500, n_audio_state=64, n_audio_head=2, n_audio_layer=2,
        n_vocab=51865, n_text_ctx=448, n_text_state=64, n_text_head=2, n_text_layer=2)
    torch.save({"dims": vars(dims), "model_state_dict": whisper.model.Whisper(dims).state_dict()},
               out / "tiny.pt")
    with wave.open(str(out / "silence.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(bytes(2 * 16000))
    (out / "bin").mkdir()
    ffmpeg = out / "bin" / "ffmpeg"
    ffmpeg.write_text(FFMPEG.format(python=sys.executable))
    ffmpeg.chmod(0o755)


main()
